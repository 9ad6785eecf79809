"""The machine's folder: `<home>/machines/<name>/` with `logs/`, `run/` and the lock of its one supervisor.

There is also a short private folder for the children's temporary files (sockets, rendezvous files, unpacked weights),
and one beside it for the episodes of agents, which other users may pass through but not list. Both are emptied when a
supervisor starts, because a killed one leaves them behind, and removed when it ends.
Invariant: two supervisors of one name never use one home; the kernel releases the lock when its holder dies.
"""

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from seamlessflow.runtime.artifacts.opening import CACHE_DIR_VARIABLE
from seamlessflow_workers.process.environment import EPISODES_VARIABLE

SOCKET_PATH_MAX = 100  # sun_path has 108 bytes including the terminator


class AlreadyRunning(RuntimeError):
    """Another supervisor with this name has locked this home."""


class UnsafeFolder(RuntimeError):
    """A folder that must be ours alone was made by another user."""


class MachineHome:
    def __init__(self, home: Path, *, name: str) -> None:
        self._root = home.absolute() / "machines" / name
        self._cache = home.absolute() / "cache"
        self._name = name
        self.logs = self._root / "logs"
        self.run = self._root / "run"
        self.scratch = _short_folder(self._root)
        self.episodes = self.scratch.with_name(f"agents-{self.scratch.name}")

    def __enter__(self) -> Self:
        """Take the home. Raises AlreadyRunning, UnsafeFolder."""
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
        self._clear_leftovers()
        return self

    def __exit__(self, *_: object) -> None:
        for folder in (self.scratch, self.episodes):
            shutil.rmtree(folder, ignore_errors=True)
        self._lock.close()

    def child_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables for temporary files, and for files worth keeping: kernels, and files of the store."""
        kept = {
            "TORCHINDUCTOR_CACHE_DIR": str(self._cache / "inductor"),
            CACHE_DIR_VARIABLE: str(self._cache / "artifacts"),
        }
        return {"TMPDIR": str(self.scratch), EPISODES_VARIABLE: str(self.episodes)} | {
            name: value for name, value in kept.items() if name not in environ
        }

    def socket_path(self, name: str) -> Path:
        """Return the path of a unix socket: in `run/`, or in the short private folder if that path is too long."""
        path = self.run / name
        if len(str(path).encode()) <= SOCKET_PATH_MAX:
            return path
        return self.scratch / name

    def _clear_leftovers(self) -> None:
        # Left by a supervisor that was killed; its children died with it.
        for leftover in self.run.iterdir():
            leftover.unlink()
        for folder, mode in ((self.scratch, 0o700), (self.episodes, 0o711)):
            _make_own(folder, mode)
            shutil.rmtree(folder)
            _make_own(folder, mode)


def _short_folder(root: Path) -> Path:
    """Return a folder with a short path, always the same for one home."""
    digest = hashlib.sha256(str(root).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"sf-{os.geteuid()}-{digest}"


def _make_own(folder: Path, mode: int) -> None:
    """Make a folder that only we can change. Raises UnsafeFolder if an existing one is not ours alone."""
    folder.mkdir(mode=mode, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o777 & ~mode:
        raise UnsafeFolder(
            f"{folder} is not a folder of mode {mode:04o} that belongs to this user; remove it"
        )
