"""One fleet, several jobs: how much of eight machines' time they use together, and how fast machines change hands.

Machines are paced: engines and trainers sleep for stated times instead of computing (`fleet.jobs`), and everything else
is real. The sides and rounds of (a) come first (`fleet.sharing`), then single trials (`fleet.trials`): arrivals,
weights and urgent jobs (`fleet.arrivals`), a crowd of one project (`fleet.projects`), faults (`fleet.faults`), more
trainers than stay warm (`fleet.warm`), and a gang of two.
Goals that are not met stay in the table as not met. An interrupted measurement continues where it was
(`cluster.journal`). Four more agent machines run the jobs' agents.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks.cluster.journal import Entry, Journal, digest_of
from tests.benchmarks.cluster.rounds import Outcome, rounds_run, steps_of
from tests.benchmarks.cluster.running import Cluster, cluster_running
from tests.benchmarks.fleet import sharing, trials
from tests.benchmarks.fleet.arrivals import Trial
from tests.benchmarks.fleet.running import Fleet, environment, machines
from tests.benchmarks.fleet.sides import SHORT_SIDES, SIDES
from tests.benchmarks.report import Row
from tests.fixtures.repository import ROOT

FOLDER = Path("build/bench/fleet")
MEASURED_CODE = tuple(
    ROOT / part
    for part in ("platform", "workers", "tests/benchmarks/cluster", "tests/benchmarks/fleet", "tests/fakes")
)
NUM_ROUNDS = 3
SAID_MIN, SAID_SHORT_MIN = 75, 3
SHARING, ARRIVALS, FAULTS, GANGS = "sharing", "arrivals", "faults", "gangs"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the benchmark; all parts run on one installation."""

    name: str
    num_rounds: int
    machines_key: str = "fleet"


async def measure(*, is_short: bool = False, folder: Path = FOLDER) -> Sequence[Row]:
    """Return the rows of all parts. Short: two sides and a fault, once, which shows that the benchmark works."""
    steps = steps_of(parts(is_short=is_short))
    journal = Journal(
        folder / ("short" if is_short else "full"),
        digest=digest_of([str(step) for step in steps], MEASURED_CODE),
    )
    _say(f"{len(steps)} runs, about {SAID_SHORT_MIN if is_short else SAID_MIN} minutes in all")
    await rounds_run(
        steps,
        journal,
        cluster_of=partial(cluster_of, folder=folder.absolute()),
        run_of=run,
        after_each=lambda: None,
    )
    _say(f"runs are kept in {journal.put_aside()}")
    return rows_of(journal.entries)


def parts(*, is_short: bool) -> list[tuple[Part, Sequence[Trial]]]:
    sides = [
        Trial(side.name, partial(sharing.measured, side=side))
        for side in (SHORT_SIDES if is_short else SIDES)
    ]
    if is_short:
        return [(Part(SHARING, 1), sides), (Part(FAULTS, 1), trials.SHORT_FAULTS)]
    return [
        (Part(SHARING, NUM_ROUNDS), sides),
        (Part(ARRIVALS, 1), trials.ARRIVALS),
        (Part(FAULTS, 1), trials.FAULTS),
        (Part(GANGS, 1), trials.GANGS),
    ]


def cluster_of(part: Part, folder: Path) -> AbstractAsyncContextManager[Cluster]:
    home = folder / "home"
    return cluster_running(home, machines(), environ=environment(home))


async def run(cluster: Cluster, part: Part, trial: Trial) -> Outcome:
    return await asyncio.to_thread(trial.run, Fleet(cluster))


def rows_of(entries: Sequence[Entry]) -> list[Row]:
    return [
        *sharing.rows_of([entry for entry in entries if entry.workload == SHARING]),
        *trials.rows_of([entry for entry in entries if entry.workload != SHARING]),
    ]


def _say(text: str) -> None:
    sys.stdout.write(f"fleet: {text}\n")
    sys.stdout.flush()
