"""The machine's folder: `<home>/machines/<name>/` with `logs/`, `run/` and the lock of its one supervisor.

Invariant: two supervisors of one name never share a home; the kernel drops the lock with its holder.
"""

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Self

SOCKET_PATH_MAX = 100  # sun_path holds 108 bytes with its end


class AlreadyRunning(RuntimeError):
    """Another supervisor of this name holds this home."""


class MachineHome:
    def __init__(self, home: Path, *, name: str) -> None:
        self._root = home.absolute() / "machines" / name
        self._name = name
        self.logs = self._root / "logs"
        self.run = self._root / "run"
        self._sockets: Path | None = None

    def __enter__(self) -> Self:
        """Raises AlreadyRunning."""
        for folder in (self.logs, self.run):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = (self._root / "supervisor.lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise AlreadyRunning(
                f"a supervisor named {self._name!r} already runs in {self._root}; stop it or choose another --name"
            ) from None
        self._clear_run()
        return self

    def __exit__(self, *_: object) -> None:
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
        self._lock.close()

    def socket_path(self, name: str) -> Path:
        """Where a unix socket may be: in `run/`, or in a short private folder when that path is too long."""
        path = self.run / name
        if len(str(path).encode()) <= SOCKET_PATH_MAX:
            return path
        if self._sockets is None:
            self._sockets = _private_folder(self._root)
        return self._sockets / name

    def _clear_run(self) -> None:
        # Left by a supervisor that was killed; its children died with it.
        for leftover in self.run.iterdir():
            leftover.unlink()


def _private_folder(root: Path) -> Path:
    """A short folder that only we can enter, the same each time for one home. Raises OSError when it is not ours."""
    digest = hashlib.sha256(str(root).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"sf-{os.geteuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} is needed for sockets, but it is not a private folder of this user")
    return folder
