"""Packages that are carried to a machine precede its own, for every process that its interpreter starts."""

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from tests.gpu.checklist.environment import CannotUnpack, interpreter_prepare

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# The carried packages, one that is only here, and our own.
FIND = "import carried_example, pytest, seamlessflow_workers, msgspec; print(carried_example.WHERE, msgspec.__file__)"


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def archive_write(path: Path, *, python: str, first: str = "carried.json") -> Path:
    contents = {
        first: json.dumps({"python": python, "packages": {}}),
        "carried_example.py": "WHERE = 'carried'",
        "msgspec/__init__.py": "",
    }
    with tarfile.open(path, "w:xz") as archive:
        for name, text in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def test_without_an_archive_the_items_run_with_this_interpreter(tmp_path: Path) -> None:
    assert interpreter_prepare(None) == sys.executable
    with pytest.raises(CannotUnpack, match="there is no archive"):
        interpreter_prepare(tmp_path / "nowhere")


def test_carried_packages_precede_those_of_the_machine(tmp_path: Path) -> None:
    archive = archive_write(tmp_path / "carried.tar.xz", python=PYTHON)
    python = interpreter_prepare(archive)
    found = subprocess.run([python, "-c", FIND], capture_output=True, text=True, check=True, cwd="/").stdout
    where, msgspec_file = found.split()
    assert where == "carried"
    assert Path(msgspec_file).is_relative_to(Path(python).parents[1])
    assert interpreter_prepare(archive) == python
    (Path(python).parents[1] / "complete").unlink()  # it was cut short: begun anew
    assert interpreter_prepare(archive) == python


@pytest.mark.parametrize(
    "options,message",
    [
        ({"python": "3.7"}, "is for Python 3.7"),
        ({"python": PYTHON, "first": "other.json"}, "was not packed by"),
    ],
)
def test_an_archive_for_something_else_is_refused(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(CannotUnpack, match=message):
        interpreter_prepare(archive_write(tmp_path / "carried.tar.xz", **options))
