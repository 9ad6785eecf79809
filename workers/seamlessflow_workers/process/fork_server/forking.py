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
    told, tell = os.pipe()
    try:
        middle = os.fork()
    except OSError:
        os.close(told)
        os.close(tell)
        raise
    if middle == 0:
        return _fork_again(told, tell)
    os.close(tell)
    try:
        _, status = os.waitpid(middle, 0)
        answer = os.read(told, _PID_BYTES)
    finally:
        os.close(told)
    if len(answer) < _PID_BYTES:
        raise OSError(
            f"no process could be forked (the intermediate one ended with {os.waitstatus_to_exitcode(status)})"
        )
    return int.from_bytes(answer, "little")


def _fork_again(told: int, tell: int) -> int:
    os.close(told)
    try:
        pid = os.fork()
    except OSError:
        os._exit(1)
    if pid != 0:
        os._exit(0)
    # It reports its id only after setsid, because whoever knows the id may signal the group.
    os.setsid()
    os.write(tell, os.getpid().to_bytes(_PID_BYTES, "little"))
    os.close(tell)
    return 0
