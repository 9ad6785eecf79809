"""Each part imports only what its own extra declares, because an image installs one extra and not
the whole lock file."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.fixtures.repository import ROOT

PLATFORM, WORKERS = ROOT / "platform" / "seamlessflow", ROOT / "workers" / "seamlessflow_workers"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = {"seamlessflow", "seamlessflow_workers"}
# Engines of kind vllm live in an environment of their own, with a lock of its own.
ELSEWHERE = {"vllm"}
ELSEWHERE_FOLDER = WORKERS / "rollout" / "vllm"
# In core for gateway, engines and trainers; an import rule keeps the control plane from it.
GUIDANCE = PLATFORM / "core" / "guidance"
NEVER_IMPORTED = {"control plane": GUIDANCE}
# Part → folders, and the extras that its image or its installation takes.
PARTS: dict[str, tuple[list[Path], list[str]]] = {
    "control plane": ([PLATFORM / "control_plane", PLATFORM / "core"], ["control"]),
    "gateway": ([PLATFORM / "data_plane", PLATFORM / "core"], ["data"]),
    "machine": ([WORKERS, PLATFORM / "core"], ["rollout", "train"]),
    "client and the command of a machine": (
        [
            PLATFORM / "client",
            *(PLATFORM / "cli" / name for name in ("main.py", "worker.py", "joining.py", "connection.py")),
            PLATFORM / "cli" / "local" / "state.py",
        ],
        [],
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_every_import_is_declared(part: str) -> None:
    folders, extras = PARTS[part]
    declared = {_name(item) for item in PROJECT["dependencies"]}
    declared |= {_name(item) for extra in extras for item in PROJECT["optional-dependencies"][extra]}
    distributions = packages_distributions()

    missing = {}
    for path in _modules(folders):
        if part in NEVER_IMPORTED and path.is_relative_to(NEVER_IMPORTED[part]):
            continue
        for module in _imported(path):
            names = {_normal(name) for name in distributions.get(module, [module])}
            if not names & declared:
                missing[module] = str(path.relative_to(ROOT))
    assert missing == {}


def _modules(folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        paths = [folder] if folder.is_file() else folder.rglob("*.py")
        yield from (path for path in paths if not path.is_relative_to(ELSEWHERE_FOLDER))


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - OURS - ELSEWHERE


def _name(requirement: str) -> str:
    return _normal(re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
