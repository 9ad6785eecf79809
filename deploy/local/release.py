"""Builds what a release consists of: the wheel and the three images, from the tag that is checked out.

    python -m deploy.local.release [--no-images]

Enters: a clean checkout at a tag `v1.2.3`, whose version `CHANGELOG.md` and the chart name too. Leaves: the wheel in
`dist/`, the images `seamlessflow/{control-plane,gateway,worker}:1.2.3` in the local engine (docker or podman), and on
standard output the commands that publish them. Invariant: nothing is built from a tree that the tag does not name.
Nothing is ever published.
"""

import re
import shutil
import subprocess
import sys

from deploy.local.bootstrap import ROOT

DIST = ROOT / "dist"
DASHBOARD = ROOT / "platform/seamlessflow/control_plane/dashboard/static/dashboard/index.html"
IMAGES = {"control-plane": (), "gateway": (), "worker": ("--build-arg", "VARIANT=cuda")}
TAG = re.compile(r"v(\d+\.\d+\.\d+)")


class ReleaseRefused(Exception):
    """The tree is not that of a release; the message says what to do."""


def main(arguments: list[str]) -> int:
    try:
        version = version_of_tree()
        wheel_build(version)
        engine = None if "--no-images" in arguments else images_build(version)
    except ReleaseRefused as refusal:
        print(f"release: {refusal}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as failure:
        print(f"release: '{' '.join(map(str, failure.cmd[:4]))} …' failed (see above)", file=sys.stderr)
        return 1
    print(f"release: {version} is built; to publish it:\n  git push origin v{version}")
    for name in IMAGES if engine else ():
        print(f"  {engine} push seamlessflow/{name}:{version}")
    return 0


def version_of_tree() -> str:
    """Return the version of the tag at HEAD. Raises ReleaseRefused unless tree, changelog and chart agree with it."""
    if changed := git("status", "--porcelain"):
        raise ReleaseRefused(f"the tree has changes that no tag names: commit them first\n{changed}")
    tags = [match[1] for tag in git("tag", "--points-at", "HEAD").split() if (match := TAG.fullmatch(tag))]
    if len(tags) != 1:
        raise ReleaseRefused("HEAD needs one tag of the form v1.2.3; it has: " + (", ".join(tags) or "none"))
    for path, line in version_lines(tags[0]):
        if line not in (ROOT / path).read_text().splitlines():
            raise ReleaseRefused(f"{path} lacks the line '{line}'")
    return tags[0]


def version_lines(version: str) -> list[tuple[str, str]]:
    """Return the files that name a version by hand, each with the line that a release of it needs."""
    chart = "deploy/helm/seamlessflow/Chart.yaml"
    return [
        ("CHANGELOG.md", f"## {version}"),
        (chart, f"version: {version}"),
        (chart, f"appVersion: {version}"),
    ]


def wheel_build(version: str) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(DIST), str(ROOT))
    if not DASHBOARD.exists():
        raise ReleaseRefused("the dashboard is not built: run `make frontend`, which shows why")
    wheels = list(DIST.glob(f"seamlessflow-{version}-*.whl"))
    if len(wheels) != 1:
        raise ReleaseRefused(
            f"the wheel in {DIST} has another version than {version}: run `make setup` first"
        )


def images_build(version: str) -> str:
    engine = next(filter(shutil.which, ("docker", "podman")), None)
    if engine is None:
        raise ReleaseRefused("images need docker or podman on the PATH (IMAGES=0 builds only the wheel)")
    for name, arguments in IMAGES.items():
        dockerfile = f"deploy/images/{name}.Dockerfile"
        version_argument = ("--build-arg", f"VERSION={version}")
        run(
            engine,
            "build",
            "-f",
            dockerfile,
            *version_argument,
            *arguments,
            "-t",
            f"seamlessflow/{name}:{version}",
            ".",
        )
    return engine


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    ).stdout.rstrip()


def run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
