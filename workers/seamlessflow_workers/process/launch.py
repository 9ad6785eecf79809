"""Becomes another program, after making itself end with the supervisor and binding itself to processor cores.

It takes `PARENT_PID CORES PROGRAM ARG...` (cores as `0,1`) and executes the program under the same process id. It runs
as a script by `python -I -S` with only the standard library, so that none of our code runs between fork and exec in a
process that has threads. Invariant: nothing survives the supervisor, however it dies.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
EXIT_PARENT_GONE = 111


def bind_to_parent(*, parent_pid: int, death_signal: signal.Signals) -> None:
    """Have the kernel signal this process when its parent, or the thread that spawned it, ends."""
    _prctl(PR_SET_PDEATHSIG, int(death_signal))
    if os.getppid() != parent_pid:  # it ended before the kernel knew
        sys.exit(EXIT_PARENT_GONE)


def subreaper_set(*, is_subreaper: bool) -> None:
    """Set whether orphans below this process become its children."""
    _prctl(PR_SET_CHILD_SUBREAPER, int(is_subreaper))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def main(arguments: list[str]) -> None:
    parent_pid, cores, *command = arguments
    bind_to_parent(parent_pid=int(parent_pid), death_signal=signal.SIGKILL)
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    # Python ignores these two, and an ignored signal stays ignored through exec.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    os.execvp(command[0], command)  # noqa: S606 - becoming the program is this module's purpose


if __name__ == "__main__":
    main(sys.argv[1:])
