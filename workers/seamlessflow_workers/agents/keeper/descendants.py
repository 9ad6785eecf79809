"""Ends all that a program started. The caller is the subreaper, so whatever lost its parent is its child."""

import contextlib
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path


def end_descendants() -> None:
    """Kill and collect until this process has no child.

    What is killed hands its own children to this process, so a walk that missed some finds them in the next round.
    """
    while True:
        for pid in _descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def end_all_of_user(user_id: int) -> None:
    """Kill every process of a user that runs nothing but one session.

    Done by a process of that user: what the kernel lets it signal is exactly the session, and it signals all of it in
    one go, so that a program that forks without end is not outrun but met again in the next round, smaller.
    """
    while True:
        pid = os.fork()
        if pid == 0:
            os.setresuid(user_id, user_id, user_id)
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            os._exit(0)
        os.waitpid(pid, 0)
        _collect()
        if not any(_user(entry) == user_id for entry in _processes()):
            return


def _collect() -> None:
    """Take leave of children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants() -> list[int]:
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
