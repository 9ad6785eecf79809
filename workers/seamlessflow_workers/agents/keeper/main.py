"""Starts one agent program, waits for it, and leaves no process of it behind.

It takes `ORDER PROGRAM ARG...`, with the order as JSON (`Order`), and ends with the program's exit code or signal. It
runs as a script by `python -I -S`, so that a session costs no imports. Invariants: the program runs as the user that
the order names, and can gain no right; of a user that runs only one session, nothing is there before and nothing stays;
every process that it started yields the cores to engines and trainers, and ends before this one does, even if it left
its group, its session or its parent (this process is the subreaper, so orphans become its children); all of them also
end with the runner.
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from seamlessflow_workers.agents.keeper.descendants import end_all_of_user, end_descendants
from seamlessflow_workers.agents.keeper.kernel import keyctl
from seamlessflow_workers.agents.keeper.leftovers import leftovers_remove
from seamlessflow_workers.agents.keeper.mounts import expose
from seamlessflow_workers.agents.keeper.order import Order
from seamlessflow_workers.agents.keeper.private_folders import common_folders, make_private
from seamlessflow_workers.agents.keeper.privileges import bounds_drop, renounce
from seamlessflow_workers.process.launch import bind_to_parent, subreaper_set

EXIT_NOT_STARTED = 126
NICENESS = 10  # engines and trainers of the same machine get nine times as much of a contended core
KEYCTL_JOIN_SESSION_KEYRING = 1


class _Ended(Exception):
    """The runner wants the program to end."""


def main(arguments: list[str]) -> None:
    order = Order(**json.loads(arguments[0]))
    signal.signal(signal.SIGTERM, _raise_ended)
    status = 0
    try:
        bind_to_parent(parent_pid=order.parent_pid, death_signal=signal.SIGTERM)
        subreaper_set(is_subreaper=True)
        if order.user_id is not None:
            make_private(str(Path.cwd()), order.kept, size_mb=order.private_mb)
            _sweep(order.user_id)
        if order.exposed:
            expose(order.exposed)
        status = _wait_for(_start(order, arguments[1:]))
    except _Ended:
        status = signal.SIGKILL  # the signal that the program gets
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_all(order)
    _end_like(status)


def _raise_ended(*_: object) -> None:
    raise _Ended


def _start(order: Order, command: list[str]) -> int:
    keeper_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become(order, command, keeper_pid)
        except OSError as error:
            print(_refusal(order, command[0], error), file=sys.stderr, flush=True)
        finally:
            os._exit(EXIT_NOT_STARTED)
    return pid


def _become(order: Order, command: list[str], keeper_pid: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()
    os.sched_setaffinity(0, order.cores)
    _yield_to_others()
    if order.user_id is not None:
        bounds_drop()
        os.setgroups([])
        os.setresgid(order.user_id, order.user_id, order.user_id)
        os.setresuid(order.user_id, order.user_id, order.user_id)
    with contextlib.suppress(OSError):  # a kernel or a container without keys
        keyctl(KEYCTL_JOIN_SESSION_KEYRING)
    renounce()
    # After the change of user, which would reset it.
    bind_to_parent(parent_pid=keeper_pid, death_signal=signal.SIGKILL)
    # Python ignores these two, and an ignored signal stays ignored through exec.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    os.execvp(command[0], command)  # noqa: S606 - becoming the program is the purpose


def _yield_to_others() -> None:
    """Run after whatever else wants the cores: a program that never rests takes none from engines and trainers."""
    os.nice(NICENESS)
    with contextlib.suppress(OSError):  # only some kernels weigh whole sessions too
        Path("/proc/self/autogroup").write_text(str(NICENESS))


def _refusal(order: Order, program: str, error: OSError) -> str:
    if order.user_id is None or not isinstance(error, PermissionError):
        return f"{program} could not be started: {error.strerror or error}"
    return (
        f"{program} could not be started by the agents' user {order.user_id}: {error.strerror}; let other users read "
        "and run it, or start the supervisor under a user of your own instead of root"
    )


def _wait_for(program: int) -> int:
    """Return the program's wait status, collecting orphans meanwhile."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == program:
            return status


def _end_all(order: Order) -> None:
    if order.user_id is not None:
        _sweep(order.user_id)
    end_descendants()


def _sweep(user_id: int) -> None:
    """Leave nothing of a user that runs only one session: of this one, or of one whose keeper was killed."""
    end_all_of_user(user_id)
    leftovers_remove(user_id, common_folders())


def _end_like(status: int) -> None:
    """End as the program did, so that the runner sees its exit code or its signal."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
