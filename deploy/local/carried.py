"""Packs what a GPU machine without a network lacks for the checklist: `python -m deploy.local.carried --present FILE`.

Enters: the packages of this environment, and a list of those on the machine (`pip list --format=freeze` there). Leaves:
`build/carried.tar.xz`, which `python -m tests.gpu.checklist` unpacks. Invariants: torch and what it brings are always
the machine's own; a package that is there in a version that ours accept is not carried; archive and checkout together
stay below 64 MiB.
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from deploy.local.bootstrap import ROOT, SetupFailed, reason, run
from deploy.local.checklist_packages import OTHER_EXTRAS, TOOLS, WORKER_EXTRAS

ARCHIVE = ROOT / "build" / "carried.tar.xz"
DESCRIPTION = "carried.json"
MAX_BYTES = 64 << 20
ALWAYS_THEIRS = frozenset({"torch", "triton"})  # with everything that only they need
ONLY_AS_SOURCES = ("deepspeed",)  # pure Python, but built by whoever installs it
NUM_LARGEST_NAMED = 5
_OLDEST_GLIBC_OF_WHEELS = 5
_PLATFORMS = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.local.carried", description=__doc__)
    parser.add_argument("--python", default="3.12", help="the machine's Python")
    parser.add_argument("--glibc", default="2.35", help="the machine's C library, or an older one")
    parser.add_argument(
        "--present", type=Path, help="what `pip list --format=freeze` prints there; default: only torch"
    )
    parser.add_argument(
        "--theirs",
        action="append",
        default=[],
        metavar="NAME",
        help="use the machine's, whatever its version",
    )
    options = parser.parse_args(arguments)
    present = frozen_read(options.present.read_text()) if options.present else {}
    theirs = {canonicalize_name(name) for name in options.theirs}
    try:
        wanted = requirements_all(options.python)
        carried = {name: version(name) for name in missing(wanted, present) if name not in theirs}
        with TemporaryDirectory() as folder:
            packages = Path(folder) / "packages"
            _download(carried, target_flags(options.python, options.glibc), Path(folder) / "wheels", packages)
            _pack(packages, {"python": options.python, "packages": carried})
            _check_size(packages)
    except SetupFailed as failure:
        print(f"carried: {failure}", file=sys.stderr)
        return 1
    _say(f"{len(carried)} packages in {ARCHIVE.relative_to(ROOT)}, {ARCHIVE.stat().st_size / 2**20:.1f} MiB")
    return 0


def frozen_read(text: str) -> dict[str, str]:
    """Return versions by name of lines such as `numpy==2.3.1`."""
    pairs = (line.strip().partition("==") for line in text.splitlines())
    return {canonicalize_name(name): found.partition("+")[0] for name, equal, found in pairs if equal}


def requirements_all(python: str) -> dict[str, list[SpecifierSet]]:
    """Return every package that our extras and the tests need, and what is asked of its version. Raises SetupFailed.

    What the packages of this environment require is followed, for another Python on Linux.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    waiting = [
        Requirement(text)
        for text in (
            *project["dependencies"],
            *(text for extra in (*WORKER_EXTRAS, *OTHER_EXTRAS) for text in extras[extra]),
            *TOOLS,
        )
    ]
    found: defaultdict[str, list[SpecifierSet]] = defaultdict(list)
    seen: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in ALWAYS_THEIRS:
            continue
        found[name].append(requirement.specifier)
        if str(requirement) not in seen:
            seen.add(str(requirement))
            waiting += _requirements_of(requirement, python)
    return found


def missing(wanted: Mapping[str, Sequence[SpecifierSet]], present: Mapping[str, str]) -> Iterator[str]:
    """Yield the packages that are not there in a version that everyone accepts."""
    for name, specifiers in sorted(wanted.items()):
        there = present.get(name)
        if there is None or not all(one.contains(there, prereleases=True) for one in specifiers):
            yield name


def _requirements_of(requirement: Requirement, python: str) -> Iterator[Requirement]:
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    try:
        texts = requires(requirement.name) or ()
    except PackageNotFoundError as error:
        raise SetupFailed(f"{requirement} is needed by Python {python} and is not installed here") from error
    for text in texts:
        own = Requirement(text)
        extras = ("", *requirement.extras)
        if own.marker is None or any(
            own.marker.evaluate({**environment, "extra": extra}) for extra in extras
        ):
            yield own


def target_flags(python: str, glibc: str) -> list[str]:
    """Return what tells pip for which machine it fetches; pip takes a platform by its exact name only."""
    newest = int(glibc.removeprefix("2."))
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(newest, _OLDEST_GLIBC_OF_WHEELS - 1, -1)]
    flags = [flag for name in (*platforms, *_PLATFORMS) for flag in ("--platform", name)]
    return [
        *flags,
        "--python-version",
        python,
        "--implementation",
        "cp",
        "--only-binary",
        ":all:",
        "--no-deps",
    ]


def _download(carried: Mapping[str, str], target: Sequence[str], wheels: Path, packages: Path) -> None:
    built = [f"{name}=={carried[name]}" for name in ONLY_AS_SOURCES if name in carried]
    others = [f"{name}=={found}" for name, found in carried.items() if name not in ONLY_AS_SOURCES]
    wheels.mkdir()
    if built:
        _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), *built)
    _pip("download", *target, "--dest", str(wheels), *others)
    files = sorted(map(str, wheels.iterdir()))
    _pip("install", *target, "--no-compile", "--target", str(packages), *files)


def _pip(*arguments: str) -> None:
    _say(f"pip {arguments[0]} ...")
    command = [sys.executable, "-m", "pip", "--no-input", *arguments]
    if (done := run(command)).returncode != 0:
        raise SetupFailed(f"pip {arguments[0]} failed: {reason(done.stderr)}")


def _pack(packages: Path, description: Mapping[str, object]) -> None:
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    raw = json.dumps(description).encode()
    with tarfile.open(ARCHIVE, "w:xz") as archive:
        first = tarfile.TarInfo(DESCRIPTION)
        first.size = len(raw)
        archive.addfile(first, io.BytesIO(raw))
        for entry in sorted(packages.iterdir()):
            archive.add(entry, entry.name)


def _check_size(packages: Path) -> None:
    """Raise SetupFailed if archive and checkout together are too large to be carried."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    checkout = sum(
        path.stat().st_size for name in listed.split(b"\0") if (path := ROOT / name.decode()).is_file()
    )
    if (total := ARCHIVE.stat().st_size + checkout) <= MAX_BYTES:
        return
    sizes = {
        entry.name: sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
        for entry in packages.iterdir()
        if entry.is_dir()
    }
    largest = sorted(sizes, key=lambda name: -sizes[name])[:NUM_LARGEST_NAMED]
    raise SetupFailed(
        f"archive and checkout have {total / 2**20:.1f} MiB, and {MAX_BYTES >> 20} can be carried; the largest are "
        f"{', '.join(largest)}: leave some to the machine with --theirs"
    )


def _say(text: str) -> None:
    print(f"carried: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
