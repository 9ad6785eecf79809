"""The Python that items run with: this one, or one to which carried packages were added.

A machine without a network has what its image holds. `deploy/local/carried.py` packs what is missing into one archive;
here it is unpacked into a virtual environment over this Python's own packages, which the carried ones precede. Every
process that an item starts with its own interpreter has them as well.
"""

import hashlib
import json
import os
import site
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

from tests.fixtures.repository import ROOT

DESCRIPTION = "carried.json"  # its first member: for which Python, and which packages
_BLOCK_BYTES = 1 << 20


class CannotUnpack(RuntimeError):
    """The archive does not suit this machine; the message says why in one sentence."""


def interpreter_prepare(archive: Path | None) -> str:
    """Return the interpreter for the items. Raises CannotUnpack."""
    if archive is None:
        return sys.executable
    if not archive.is_file():
        raise CannotUnpack(f"there is no archive {archive}")
    home = Path(tempfile.gettempdir()) / f"seamlessflow-carried-{_digest(archive)}"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        _check_python(archive)
        venv.EnvBuilder(clear=True, symlinks=True).create(home)
        packages = home / "lib" / f"python{_python_version()}" / "site-packages"
        with tarfile.open(archive) as packed:
            packed.extractall(packages, filter="data")
        beneath = [*site.getsitepackages(), str(ROOT / "platform"), str(ROOT / "workers"), str(ROOT)]
        (packages / "beneath.pth").write_text("\n".join(beneath) + "\n")
        (home / "complete").touch()
    return str(python)


def _check_python(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        first = packed.next()
        described = packed.extractfile(first) if first is not None and first.name == DESCRIPTION else None
        if described is None:
            raise CannotUnpack(f"{archive} was not packed by deploy/local/carried.py")
        wanted = json.load(described)["python"]
    if wanted != _python_version():
        raise CannotUnpack(
            f"{archive} is for Python {wanted}, and this is {_python_version()}; pack it with "
            f"--python {_python_version()}"
        )


def _python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _digest(archive: Path) -> str:
    digest = hashlib.sha256(f"{os.getuid()} {ROOT} {sys.executable}".encode())
    with archive.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()[:16]
