"""Interleaved measuring, and the programs that are measured.

It takes the sides of a comparison, each a coroutine that measures once, and returns the values of
each by metric. Every repeat measures all sides in an order that rotates, so that a drift of the
machine affects all of them.
"""

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from seamlessflow.cli.local.identity import same_identity, wrapped
from tests.benchmarks.report import MIN_REPEATS, Measured
from tests.fixtures.repository import ROOT

DEATH_SIGNAL = 9
STOP_TIMEOUT_S = 20.0
NUM_REPEATS = 5
_SCHEDULED_TIME = 2  # the kernel's CPUCLOCK_SCHED

Sample = Mapping[str, float]
Side = Callable[[], Awaitable[Sample]]
Samples = dict[str, dict[str, Measured]]


async def interleaved(
    sides: Mapping[str, Side], *, num_repeats: int = NUM_REPEATS, num_warm_ups: int = 1
) -> Samples:
    """Measure each side `num_repeats` times after warm-up rounds that do not count; return values
    by side, then by metric."""
    values: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in sides}
    for measure in [*sides.values()] * num_warm_ups:
        await measure()
    order = list(sides)
    for _ in range(num_repeats):
        for name in order:
            for metric, value in (await sides[name]()).items():
                values[name][metric].append(value)
        order.reverse()
    return {
        name: {
            metric: Measured(repeats, min_repeats=min(num_repeats, MIN_REPEATS))
            for metric, repeats in metrics.items()
        }
        for name, metrics in values.items()
    }


@dataclass(frozen=True, slots=True)
class Program:
    """A running program that serves on a loopback port."""

    pid: int
    base_url: str


@contextmanager
def program_running(
    module: str, *arguments: str, environ: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """Run `python -m module`, which prints a line that ends in its port once it serves. It dies
    with this process."""
    command = (sys.executable, "-m", module, *arguments)
    process = subprocess.Popen(
        wrapped(command, identity=same_identity(), death_signal=DEATH_SIGNAL),
        cwd=ROOT,
        env=os.environ | dict(environ or {}),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        words = process.stdout.readline().split()
        if not words:
            raise RuntimeError(f"{module} did not start (status {process.wait()}).")
        yield Program(process.pid, f"http://127.0.0.1:{words[-1]}")
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        process.stdout.close()


def cpu_s(pid: int) -> float:
    """Return the processor seconds of a process with all its threads since it began, with the
    nanosecond resolution of clock_getcpuclockid(3)."""
    return time.clock_gettime((~pid << 3) | _SCHEDULED_TIME)
