"""Users that agent programs run as: one for each running session, without any rights.

A session's user can neither read what belongs to the supervisor or to another session, nor signal its processes. Users
are numbers without an account, from a range that distributions leave free, and are taken in turn. A file lock per
number keeps supervisors on one host apart; the kernel releases it when its holder dies. Only root can become another
user: without root, programs run as the supervisor's own user (docs/operations.md says what that means).
"""

import asyncio
import contextlib
import fcntl
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

FIRST_USER, NUM_USERS = 60_706, 400  # 60706 to 61183 are unused in systemd's assignment of user numbers
POLL_S = 0.1
MAX_DIGITS = 10
LOCK_FOLDERS = (Path("/run"), Path("/tmp"))  # noqa: S108 - the folder below it is checked


class UnsafeLocks(RuntimeError):
    """The folder of the locks was made by another user."""


@contextlib.asynccontextmanager
async def session_user() -> AsyncIterator[int | None]:
    """Yield a user number that no other session has; None if this process is not root. Raises UnsafeLocks."""
    if os.geteuid() != 0:
        yield None
        return
    folder = _lock_folder()
    while (taken := _take(folder)) is None:  # noqa: ASYNC110
        # Other supervisors on this host take users too, and do not announce when one becomes free.
        await asyncio.sleep(POLL_S)
    user_id, lock = taken
    try:
        yield user_id
    finally:
        os.close(lock)


def _take(folder: Path) -> tuple[int, int] | None:
    """Take the first free number after the one that was taken last: what a user left has the longest time to end."""
    last = os.open(folder / "last", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        text = os.pread(last, MAX_DIGITS, 0).decode()
        for user_id in _after(int(text) if text.isdecimal() else FIRST_USER - 1):
            if (lock := _lock(folder / str(user_id))) is not None:
                os.pwrite(last, str(user_id).encode(), 0)  # all numbers have as many digits
                return user_id, lock
    finally:
        os.close(last)
    return None


def _after(last: int) -> list[int]:
    """Return all numbers, beginning after this one."""
    return [FIRST_USER + (last + 1 - FIRST_USER + step) % NUM_USERS for step in range(NUM_USERS)]


def _lock(path: Path) -> int | None:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _lock_folder() -> Path:
    parent = next(folder for folder in LOCK_FOLDERS if os.access(folder, os.W_OK))
    folder = parent / "seamlessflow-agent-users"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != 0 or status.st_mode & 0o077:
        raise UnsafeLocks(f"{folder} is not a folder of mode 0700 that belongs to root; remove it")
    return folder
