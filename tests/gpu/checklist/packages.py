"""What the machine has: Python packages against pyproject.toml, torch and its card, a compiler for Triton's kernels.

A package of the workers that is missing fails the item, and so does a card that was asked for. One that only the suites
or whole jobs need is left out by name, and so is one of another version than was tested: the other items show whether
that matters.
"""

import re
import shutil
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from deploy.local.checklist_packages import OTHER_EXTRAS, TOOLS, WORKER_EXTRAS
from tests.fixtures.repository import ROOT
from tests.gpu.checklist.checking import Figures, item_main

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def check(device: str, _sizes: list[str], figures: Figures) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *(name for extra in WORKER_EXTRAS for name in extras[extra])]
    others = [*(name for extra in OTHER_EXTRAS for name in extras[extra]), *TOOLS]
    figures.note("packages", **_present([*needed, *others]))
    if missing := list(_missing(others)):
        figures.leave_out("suites and jobs", f"these packages are missing: {', '.join(missing)}")
    for name, wanted, found in _differing([*needed, *others]):
        figures.leave_out(f"{name} {wanted}", f"{found} is here")
    absent = list(_missing(needed))
    assert absent == [], f"these packages are missing: {', '.join(absent)}"
    _check_torch(device, figures)


def _check_torch(device: str, figures: Figures) -> None:
    import torch

    compiler = shutil.which("cc") or shutil.which("gcc")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    figures.note("torch", version=torch.__version__, cuda=torch.version.cuda, compiler=compiler)
    if device == "cpu":
        figures.leave_out("CUDA", "a processor was asked for")
        return
    assert torch.cuda.is_available(), "torch sees no CUDA device: NOTHING WAS RUN ON A GPU"
    properties = torch.cuda.get_device_properties(0)
    figures.note("card", name=properties.name, bytes=properties.total_memory, count=torch.cuda.device_count())
    assert compiler, "Triton compiles its launchers, and there is no C compiler"
    assert header.exists(), f"Triton compiles its launchers, and {header} is missing"


def _present(requirements: Iterable[str]) -> dict[str, str]:
    found = ((name, _version(name)) for name, _ in map(_parsed, requirements))
    return {name: known for name, known in found if known is not None}


def _missing(requirements: Iterable[str]) -> Iterator[str]:
    return (name for name, _ in map(_parsed, requirements) if _version(name) is None)


def _differing(requirements: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, version, version found) of packages that must have one version and have another."""
    for name, rest in map(_parsed, requirements):
        found = (_version(name) or "").partition("+")[0]
        if found and rest.startswith("==") and found != (wanted := rest.removeprefix("==")):
            yield name, wanted, found


def _parsed(requirement: str) -> tuple[str, str]:
    """Return a requirement's name, and what follows it without its extras."""
    match = _NAME.match(requirement)
    assert match is not None, requirement
    return match.group(), re.sub(r"^\[.*?\]", "", requirement[match.end() :])


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    item_main(check, needs_card=False)
