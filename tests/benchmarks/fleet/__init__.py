"""One fleet, several jobs: how much of eight machines' time they use together, and how fast machines change hands.

Machines are paced: engines and trainers sleep for stated times instead of computing (`fleet.jobs`), and everything else
is real. The sides and rounds of (a) come first (`fleet.sharing`), then single trials of arrivals, weights and urgent
jobs (`fleet.arrivals`). Goals that are not met stay in the table as not met. An interrupted measurement continues where
it was (`cluster.journal`). Three more agent machines run the jobs' agents.
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
from tests.benchmarks.fleet import sharing
from tests.benchmarks.fleet.arrivals import (
    FAILED_STEPS,
    FIRST_TOKEN,
    HELD,
    LEAST,
    LEFT,
    TURNED,
    Trial,
    newcomer_alone,
    newcomer_to_full_fleet,
    shares_by_weight,
    urgent_jobs,
)
from tests.benchmarks.fleet.jobs import JOBS
from tests.benchmarks.fleet.running import Fleet, machines
from tests.benchmarks.fleet.sides import NUM_MACHINES, SHORT_SIDES, SIDES
from tests.benchmarks.report import Bound, Goal, Measured, Quantity, Row
from tests.fixtures.repository import ROOT

FOLDER = Path("build/bench/fleet")
MEASURED_CODE = tuple(
    ROOT / part
    for part in ("platform", "workers", "tests/benchmarks/cluster", "tests/benchmarks/fleet", "tests/fakes")
)
NUM_ROUNDS = 3
WEIGHED_S = 45.0
NUM_URGENT = 20
SAID_MIN, SAID_SHORT_MIN = 45, 2
SHARING, ARRIVALS = "sharing", "arrivals"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the benchmark; all parts run on one installation."""

    name: str
    num_rounds: int
    machines_key: str = "fleet"


async def measure(*, is_short: bool = False, folder: Path = FOLDER) -> Sequence[Row]:
    """Return the rows of all parts. Short: two sides, once, which shows that the benchmark works."""
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
        return [(Part(SHARING, 1), sides)]
    arrivals = [
        Trial("a job on an empty fleet", newcomer_alone),
        Trial("a job on a full fleet", newcomer_to_full_fleet),
        Trial("weights 1:1:2", partial(shares_by_weight, duration_s=WEIGHED_S)),
        Trial("urgent jobs", partial(urgent_jobs, num_jobs=NUM_URGENT)),
    ]
    return [(Part(SHARING, NUM_ROUNDS), sides), (Part(ARRIVALS, 1), arrivals)]


def cluster_of(part: Part, folder: Path) -> AbstractAsyncContextManager[Cluster]:
    return cluster_running(folder / "home", machines())


async def run(cluster: Cluster, part: Part, trial: Trial) -> Outcome:
    return await asyncio.to_thread(trial.run, Fleet(cluster))


def rows_of(entries: Sequence[Entry]) -> list[Row]:
    return [
        *sharing.rows_of([entry for entry in entries if entry.workload == SHARING]),
        *_arrival_rows([entry for entry in entries if entry.workload == ARRIVALS]),
    ]


def _arrival_rows(entries: Sequence[Entry]) -> list[Row]:
    figures = {entry.side: entry.figures for entry in entries}
    if not figures:
        return []
    empty, full = figures["a job on an empty fleet"], figures["a job on a full fleet"]
    weights, urgent = figures["weights 1:1:2"], figures["urgent jobs"]
    first, entitled = _once(full[FIRST_TOKEN]), NUM_MACHINES / len(JOBS)
    return [
        Row("first served token on a full fleet", "s", first, "an empty fleet", _once(empty[FIRST_TOKEN]),
            Goal(1.5, Bound.AT_MOST, of=Quantity.RATIO)),
        _judged(f"newcomer: {HELD}", full[HELD], entitled - 1),
        _judged(f"weights 1:1:2: {LEAST}", weights[LEAST], 0.9),
        _judged(f"pause: {LEFT}", weights[LEFT], 3.0, Bound.AT_MOST),
        _judged(f"urgent: {TURNED}", urgent[TURNED], 3.0, Bound.AT_MOST),
        _judged(f"urgent: {FAILED_STEPS}", urgent[FAILED_STEPS], 0.0, Bound.AT_MOST),
    ]  # fmt: skip


def _judged(metric: str, value: float, limit: float, bound: Bound = Bound.AT_LEAST) -> Row:
    return Row(metric, "", _once(value), "itself", _once(value), Goal(limit, bound))


def _once(value: float) -> Measured:
    return Measured([value], min_repeats=1)


def _say(text: str) -> None:
    sys.stdout.write(f"fleet: {text}\n")
    sys.stdout.flush()
