"""Files on their way in, below INCOMING_DIR: each is locked by the process that writes it.

Invariant: a web process at its start, or maintenance, removes what a killed process left, and never anything that is
still being written. The kernel releases a lock when its process ends.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

YOUNG_S = 10.0  # it may exist and not be locked yet
OLD_S = 24 * 3600.0  # without file locks, only the age is known
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep `path`, a file or folder, from being removed as a leftover while the block runs."""
    descriptor = entry_lock(path)
    try:
        yield
    finally:
        os.close(descriptor)


def entry_lock(path: Path) -> int:
    """Return a descriptor that keeps `path` locked until it is closed, if the file system has locks."""
    descriptor = os.open(path, os.O_RDONLY)
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def leftovers_remove(folder: Path) -> int:
    """Remove entries that no process writes any more. Returns how many."""
    doomed = [path for path in folder.iterdir() if _is_leftover(path)]
    for path in doomed:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if doomed:
        _log.warning("removed %d unfinished uploads that a killed process left", len(doomed))
    return len(doomed)


def _is_leftover(path: Path) -> bool:
    try:
        age_s = time.time() - path.lstat().st_mtime
        if age_s < YOUNG_S or path.is_symlink():
            return False
        return not _is_locked(path, is_old=age_s > OLD_S)
    except FileNotFoundError:  # its owner finished meanwhile
        return False


def _is_locked(path: Path, *, is_old: bool) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return not is_old
    else:
        return False
    finally:
        os.close(descriptor)
