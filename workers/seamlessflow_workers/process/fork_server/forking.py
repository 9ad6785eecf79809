"""`fork_adopted` is like `os.fork`, but the new process becomes a child of the nearest subreaper, the supervisor.

So the supervisor waits for it, the kernel kills it with the supervisor, and it outlives the fork server.
"""

import os

_PID_BYTES = 8


def fork_adopted() -> int:
    """Return 0 in the new process, which leads its own session, and its id in the caller. Raises OSError.

    An intermediate process forks once more and exits: its child is orphaned, and adopted before the caller has waited
    for the intermediate process. The caller must have no other children.
    """
    reading, writing = os.pipe()
    try:
        middle = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if middle == 0:
        return _fork_again(reading, writing)
    os.close(writing)
    try:
        _, status = os.waitpid(middle, 0)
        answer = os.read(reading, _PID_BYTES)
    finally:
        os.close(reading)
    if len(answer) < _PID_BYTES:
        raise OSError(
            f"no process could be forked (the intermediate one ended with {os.waitstatus_to_exitcode(status)})"
        )
    return int.from_bytes(answer, "little")


def _fork_again(reading: int, writing: int) -> int:
    os.close(reading)
    try:
        pid = os.fork()
    except OSError:
        os._exit(1)
    if pid != 0:
        os._exit(0)
    # It reports its id only after setsid, because a process that knows the id may signal the group.
    os.setsid()
    os.write(writing, os.getpid().to_bytes(_PID_BYTES, "little"))
    os.close(writing)
    return 0
