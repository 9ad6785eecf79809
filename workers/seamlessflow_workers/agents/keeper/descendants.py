"""Ends everything that a program started. The caller is the subreaper, so orphaned processes are its children."""

import contextlib
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

NONE_LEFT = 1  # exit code


def end_descendants() -> None:
    """Kill and collect until this process has no children.

    The children of a killed process become children of this one, so a round finds those that the previous one missed.
    """
    while True:
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def end_all_of_user(user_id: int) -> None:
    """Kill every process of a user that runs only one session.

    A process of that user does it: the kernel lets it signal exactly the session, and all of it in one call. So a
    program that forks without end cannot outrun it; each round leaves fewer processes.
    """
    while True:
        pid = os.fork()
        if pid == 0:
            os.setresuid(user_id, user_id, user_id)
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                os._exit(NONE_LEFT)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == NONE_LEFT:
            return
        _collect()
        if not any(_user(entry) == user_id for entry in _processes()):
            return


def _collect() -> None:
    """Collect children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants() -> list[int]:
    """Return the processes below this one, including those that have ended without a waiting parent."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in _processes():
        if (parent := _parent(entry)) is not None:
            children[parent].append(int(entry.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children[waiting.pop()]
        found += below
        waiting += below
    return found


def _parent(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return None


def _processes() -> Iterator[Path]:
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _user(entry: Path) -> int | None:
    try:
        return entry.stat().st_uid
    except FileNotFoundError:
        return None
