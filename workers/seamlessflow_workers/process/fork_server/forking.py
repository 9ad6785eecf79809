"""`fork_adopted`: like `os.fork`, but the new process belongs to the nearest subreaper above, the supervisor.

So the supervisor waits for it, the kernel kills it with the supervisor, and it outlives the fork server.
"""

import os

_PID_BYTES = 8


def fork_adopted() -> int:
    """0 in the new process, which leads a session of its own; its id in the caller. Raises OSError.

    A process in between forks once more and ends: its child is orphaned, and adopted before the caller has collected
    the one in between. The caller must have no other children.
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
            f"no process could be forked (the one in between ended with {os.waitstatus_to_exitcode(status)})"
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
    # Told by itself, after this: whoever knows the id may signal the group.
    os.setsid()
    os.write(tell, os.getpid().to_bytes(_PID_BYTES, "little"))
    os.close(tell)
    return 0
