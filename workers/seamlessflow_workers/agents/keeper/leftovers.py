"""Removes what a session's user left on the host, before another session gets its number, and after each.

A process of that user does it, so it can remove nothing of another user: its segments, semaphores and queues, its keys,
and its files where every user may write. Nothing of it is an error: files that it cannot remove belong to another user.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from seamlessflow_workers.agents.keeper.kernel import call, keyctl

IPC_RMID = 0
IPC_CALLS = {"shm": "shmctl", "sem": "semctl", "msg": "msgctl"}
KEYCTL_CLEAR, KEYCTL_GET_PERSISTENT = 7, 22
PROCESS_KEYRING, USER_KEYRING, USER_SESSION_KEYRING = -2, -4, -5


def leftovers_remove(user_id: int, folders: Sequence[Path]) -> None:
    """Remove them, the user's files in these folders included."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(user_id, user_id, user_id)
            os.setresuid(user_id, user_id, user_id)
            _remove_all(user_id, folders)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _remove_all(user_id: int, folders: Sequence[Path]) -> None:
    for kind, function in IPC_CALLS.items():
        for number in _ipc_of(user_id, kind):
            with contextlib.suppress(OSError):
                call(function, number, *((0,) if kind == "sem" else ()), IPC_RMID, None)
    with contextlib.suppress(OSError):
        keyctl(KEYCTL_CLEAR, keyctl(KEYCTL_GET_PERSISTENT, user_id, PROCESS_KEYRING))
    for keyring in (USER_KEYRING, USER_SESSION_KEYRING):
        with contextlib.suppress(OSError):
            keyctl(KEYCTL_CLEAR, keyring)
    for folder in folders:
        _files_remove(folder, user_id)


def _ipc_of(user_id: int, kind: str) -> Iterator[int]:
    """Yield the numbers of the objects that the user made; the first line of the kernel's table names its columns."""
    with contextlib.suppress(OSError):
        names, *rows = (line.split() for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines())
        for row in rows:
            if str(user_id) in (row[names.index("uid")], row[names.index("cuid")]):
                yield int(row[names.index(f"{kind}id")])


def _files_remove(folder: Path, user_id: int) -> None:
    """Remove the user's files below a folder, without following links; they are only where the user may write."""
    with contextlib.suppress(OSError):
        for below in folder.iterdir():
            with contextlib.suppress(OSError):
                status = below.lstat()
                is_own, is_folder = status.st_uid == user_id, stat.S_ISDIR(status.st_mode)
                if is_folder and (is_own or status.st_mode & stat.S_IWOTH):
                    _files_remove(below, user_id)
                if is_own:
                    below.rmdir() if is_folder else below.unlink()
