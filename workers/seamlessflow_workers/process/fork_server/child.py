"""What a forked process does to become the program it was forked for.

It takes a `Fork` and the descriptors that came with it, and runs the program's module as `__main__`. Invariant: it does
nothing before the supervisor has let it in, and dies with the supervisor.
"""

import fcntl
import os
import runpy
import signal
import sys
from dataclasses import dataclass

import setproctitle

from seamlessflow_workers.process.fork_server.messages import Fork
from seamlessflow_workers.process.launch import bind_to_parent

EXIT_NOT_LET_IN = 112
_LET_IN = b"!"


@dataclass(frozen=True, slots=True)
class Child:
    fork: Fork
    gate: int
    output: int
    inherited: tuple[int, ...]
    supervisor_pid: int

    def become(self) -> None:
        """Run the program and return when it does; the interpreter finds its exit status, as for any program."""
        if os.read(self.gate, 1) != _LET_IN:
            os._exit(EXIT_NOT_LET_IN)
        os.close(self.gate)
        bind_to_parent(parent_pid=self.supervisor_pid, death_signal=signal.SIGKILL)
        self._descriptors_place()
        # Before the environment goes: it is by that that the title's place is found.
        setproctitle.setproctitle(" ".join([sys.executable, "-m", self.fork.module, *self.fork.arguments]))
        os.environ.clear()
        os.environ.update(self.fork.environment)
        _randomness_renew()
        sys.argv = [self.fork.module, *self.fork.arguments]
        runpy.run_module(self.fork.module, run_name="__main__", alter_sys=True)

    def _descriptors_place(self) -> None:
        """Place each descriptor at its number; first move all away, as one may stand where another belongs."""
        places = {1: self.output, 2: self.output} | dict(
            zip(self.fork.descriptors, self.inherited, strict=True)
        )
        above = max(places) + 1
        lifted = {place: fcntl.fcntl(number, fcntl.F_DUPFD, above) for place, number in places.items()}
        for number in {self.output, *self.inherited}:
            os.close(number)
        for place, number in lifted.items():
            os.dup2(number, place, inheritable=place <= 2)
            os.close(number)


def _randomness_renew() -> None:
    """Reseed, so that siblings do not draw alike. Python's own generator does that by itself."""
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
