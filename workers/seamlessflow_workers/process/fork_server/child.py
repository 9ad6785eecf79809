"""What a forked process does to become the program it was forked for.

It takes a `Fork` and the descriptors that came with it, and runs the program's module as `__main__`. Invariant: it does
nothing until the supervisor has let it in, and it dies with the supervisor.
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
        """Run the program and return when it does; its exit status is that of the interpreter, as for any program."""
        if os.read(self.gate, 1) != _LET_IN:
            os._exit(EXIT_NOT_LET_IN)
        os.close(self.gate)
        bind_to_parent(parent_pid=self.supervisor_pid, death_signal=signal.SIGKILL)
        os.sched_setaffinity(0, self.fork.cores)
        self._descriptors_set()
        # Before the environment is cleared, because setproctitle finds the title's memory by it.
        setproctitle.setproctitle(" ".join([sys.executable, "-m", self.fork.module, *self.fork.arguments]))
        os.environ.clear()
        os.environ.update(self.fork.environment)
        _randomness_renew()
        sys.argv = [self.fork.module, *self.fork.arguments]
        runpy.run_module(self.fork.module, run_name="__main__", alter_sys=True)

    def _descriptors_set(self) -> None:
        """Move each descriptor to its number, after moving all of them out of the way, as they may overlap."""
        targets = {1: self.output, 2: self.output} | dict(
            zip(self.fork.descriptors, self.inherited, strict=True)
        )
        above = max(targets) + 1
        lifted = {target: fcntl.fcntl(number, fcntl.F_DUPFD, above) for target, number in targets.items()}
        for number in {self.output, *self.inherited}:
            os.close(number)
        for target, number in lifted.items():
            os.dup2(number, target, inheritable=target <= 2)
            os.close(number)


def _randomness_renew() -> None:
    """Reseed numpy, so that siblings do not draw the same numbers. Python's own generator reseeds itself."""
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
