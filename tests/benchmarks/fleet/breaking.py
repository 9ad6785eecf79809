"""Breaks machines and jobs by what happens to real ones, and mends them however a trial ends.

A broken machine kills the programs that run on it and starts none. A silent machine has all its processes stopped, its
supervisor too, as if it had lost its network and its power at once. A poison job has a model that no program can load.
"""

import contextlib
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.benchmarks.cluster.running import RunFailed
from tests.benchmarks.fleet.jobs import FleetJob
from tests.benchmarks.fleet.running import BROKEN, Fleet
from tests.fakes.broken_machine import machine_break, machine_mend
from tests.fakes.pace import FILE

PROGRAMS = ("tests.fakes.paced_engine", "tests.fakes.paced_trainer")


@dataclass(frozen=True, slots=True)
class PoisonJob(FleetJob):
    """A job whose model cannot be loaded, on any machine."""

    def write(self, endless: Path, folder: Path) -> tuple[Path, Path]:
        model, tasks = FleetJob.write(self, endless, folder)
        (model / FILE).write_text("{ this file was cut")
        return model, tasks


@contextmanager
def cordoned(fleet: Fleet, name: str) -> Iterator[None]:
    fleet.edit(name, is_cordoned=True)
    try:
        yield
    finally:
        fleet.edit(name, is_cordoned=False)


@contextmanager
def broken(fleet: Fleet, name: str) -> Iterator[None]:
    """Let every phase on a machine fail meanwhile. It is mended at the end, and released from its quarantine."""
    folder = fleet.cluster.stack.home.root / BROKEN
    machine_break(folder, name)
    try:
        for process in _processes(fleet, name):
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(program in process.cmdline() for program in PROGRAMS):
                    process.kill()
        yield
    finally:
        machine_mend(folder, name)
        machine = fleet.client.machine_get(name)
        if machine["quarantine"] is not None:
            fleet.client.machine_release(machine["id"], reason="benchmark: the machine is mended")


@contextmanager
def silent(fleet: Fleet, names: Collection[str]) -> Iterator[None]:
    """Silence machines at once. At the end their processes are killed, and the launcher starts their supervisors."""
    processes = [process for name in names for process in _processes(fleet, name)]
    _signal(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(processes, signal.SIGKILL)


def _processes(fleet: Fleet, name: str) -> list[psutil.Process]:
    """Return the supervisor of a machine and whatever it started."""
    pids = {managed.spec.name: managed.pid for managed in fleet.cluster.stack.processes}
    pid = pids[f"supervisor-{name}"]
    if pid is None:
        raise RunFailed(f"the supervisor of {name} is not running")
    supervisor = psutil.Process(pid)
    return [supervisor, *supervisor.children(recursive=True)]


def _signal(processes: Collection[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            process.send_signal(number)
