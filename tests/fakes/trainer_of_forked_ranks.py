"""The real trainer, whose other ranks are forked before it begins: `python -m … NUM_OTHERS`, then
the trainer's flags.

A rank starts as the same program with the same socket as usual, but without the imports. The other
ranks are children of this process and wait to be told what to become; one that is never told ends
with it.
"""

import os
import runpy
import socket
import sys
from collections.abc import Sequence
from types import SimpleNamespace

from seamlessflow_workers.process.fork_server.preloading import open_descriptors
from seamlessflow_workers.train.control import die_with_parent
from seamlessflow_workers.train.distributed.rank_group import engine_load

TRAINER = "seamlessflow_workers.train"
NAME_BYTES = 1024


class ForkedRank:
    """The part of `subprocess.Popen` that the first rank uses."""

    def __init__(self, pid: int, gate: socket.socket) -> None:
        self.returncode: int | None = None
        self._pid = pid
        self._gate = gate

    def become(self, command: Sequence[str], *, pass_fds: Sequence[int]) -> "ForkedRank":
        _python, _m, module, _descriptor = command
        with self._gate:
            socket.send_fds(self._gate, [module.encode()], pass_fds)
        return self

    def wait(self) -> int:
        _, status = os.waitpid(self._pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def fork_rank() -> ForkedRank:
    """Returns in the first rank only."""
    gate, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return ForkedRank(pid, gate)
    die_with_parent()
    for number in open_descriptors() - {0, 1, 2, theirs.fileno()}:
        os.close(number)  # as a program that is executed would
    gate.detach()
    name, descriptors, _, _ = socket.recv_fds(theirs, NAME_BYTES, 1)
    if name:
        theirs.close()
        program_run(name.decode(), [str(descriptors[0])])
    sys.exit(0)


def program_run(module: str, arguments: Sequence[str]) -> None:
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main(num_others: int, arguments: Sequence[str]) -> None:
    ranks = [fork_rank() for _ in range(num_others)]

    def start(command: Sequence[str], *, pass_fds: Sequence[int]) -> ForkedRank:
        return ranks.pop(0).become(command, pass_fds=pass_fds)

    setattr(sys.modules[engine_load.__module__], "subprocess", SimpleNamespace(Popen=start))  # noqa: B010
    program_run(TRAINER, arguments)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
