"""Runs interleaved rounds: each round measures every side of every workload, in an order that
rotates.

It takes steps and a journal, and completes the journal. Steps that the journal already contains are
not measured again. A failed run is reported and tried once more after all others; installations are
restarted after it. Whatever ends the measurement, the journal contains what was measured.
"""

import os
import sys
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

import psycopg

from seamlessflow.client import ApiError
from tests.benchmarks.cluster.journal import Entry, Journal
from tests.benchmarks.cluster.running import Cluster, RunFailed

FAILURES = (RunFailed, ApiError, psycopg.Error)
NUM_ATTEMPTS = 2
FIRST_GUESS_S = 40.0  # of one run, before any was measured
S_PER_MINUTE = 60


class Workload(Protocol):
    """What is measured on sides. Workloads with the same `machines_key` run on one installation."""

    @property
    def name(self) -> str: ...
    @property
    def machines_key(self) -> Hashable: ...
    @property
    def num_rounds(self) -> int: ...


class Side(Protocol):
    @property
    def name(self) -> str: ...


W = TypeVar("W", bound=Workload)
S = TypeVar("S", bound=Side)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run showed; progress tells the first of the figures."""

    figures: Mapping[str, float]
    time_shares: Mapping[str, float]
    cpu_shares: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Step(Generic[W, S]):
    """One run to be measured."""

    workload: W
    side: S
    round: int

    def __str__(self) -> str:
        return f"{self.workload.name}; {self.side.name}; round {self.round + 1}"

    @property
    def key(self) -> tuple[str, str, int]:
        return self.workload.name, self.side.name, self.round


def steps_of(workloads: Sequence[tuple[W, Sequence[S]]]) -> list[Step[W, S]]:
    """Return the steps round by round, so that an interrupted measurement has complete rounds.
    Every other round runs in reverse order."""
    steps: list[Step[W, S]] = []
    for round_number in range(max(workload.num_rounds for workload, _ in workloads)):
        of_round = [
            Step(workload, side, round_number)
            for workload, sides in workloads
            if round_number < workload.num_rounds
            for side in sides
        ]
        steps += of_round if round_number % 2 == 0 else reversed(of_round)
    return steps


async def rounds_run(
    steps: Sequence[Step[W, S]],
    journal: Journal,
    *,
    cluster_of: Callable[[W], AbstractAsyncContextManager[Cluster]],
    run_of: Callable[[Cluster, W, S], Awaitable[Outcome]],
    after_each: Callable[[], object],
) -> None:
    """Measure what the journal does not contain. Raises RunFailed if runs failed twice; all others
    are measured by then."""
    known = {(entry.workload, entry.side, entry.round) for entry in journal.entries}
    pending = [step for step in steps if step.key not in known]
    if known:
        _say(
            f"{len(known)} of {len(steps)} runs are in {journal.path} already (without it all are measured anew)"
        )
    for attempt in range(NUM_ATTEMPTS):
        if attempt > 0:
            _say(f"once more: {' and '.join(map(str, pending))}")
        pending = await _measure_all(
            pending, journal, cluster_of=cluster_of, run_of=run_of, after_each=after_each
        )
        if not pending:
            return
    raise RunFailed(
        f"failed {NUM_ATTEMPTS} times: {' and '.join(map(str, pending))}; the others are in {journal.path}"
    )


async def _measure_all(
    pending: Sequence[Step[W, S]],
    journal: Journal,
    *,
    cluster_of: Callable[[W], AbstractAsyncContextManager[Cluster]],
    run_of: Callable[[Cluster, W, S], Awaitable[Outcome]],
    after_each: Callable[[], object],
) -> list[Step[W, S]]:
    """Use one installation for as many consecutive steps as need the same machines and succeed.
    Return the failed ones."""
    remaining, failed = list(pending), list[Step[W, S]]()
    while remaining:
        machines = remaining[0].workload.machines_key
        async with cluster_of(remaining[0].workload) as cluster:
            while remaining and remaining[0].workload.machines_key == machines:
                step = remaining.pop(0)
                try:
                    entry = await _measure(step, cluster, run_of)
                except FAILURES as error:
                    _say(f"{step}: FAILED: {error}")
                    failed.append(step)
                    break
                journal.append(entry)
                after_each()
                _say_progress(step, entry, remaining, journal)
    return failed


async def _measure(
    step: Step[W, S], cluster: Cluster, run_of: Callable[[Cluster, W, S], Awaitable[Outcome]]
) -> Entry:
    load, started_s = os.getloadavg()[0], time.monotonic()
    outcome = await run_of(cluster, step.workload, step.side)
    return Entry(
        workload=step.workload.name,
        side=step.side.name,
        round=step.round,
        figures=dict(outcome.figures),
        time_shares=dict(outcome.time_shares),
        cpu_shares=dict(outcome.cpu_shares),
        took_s=time.monotonic() - started_s,
        load_before=load,
        ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _say_progress(step: Step[W, S], entry: Entry, remaining: Sequence[Step[W, S]], journal: Journal) -> None:
    num_done = len(journal.entries)
    figure, value = next(iter(entry.figures.items()))
    left = "the last one"
    if remaining:
        left = f"about {remaining_s(remaining, journal.entries) / S_PER_MINUTE:.0f} min left"
    _say(
        f"[{num_done}/{num_done + len(remaining)}] {step}: {figure} {value:,.3g}, "
        f"took {entry.took_s:.0f} s, load before {entry.load_before:.1f}; {left}"
    )


def remaining_s(remaining: Sequence[Step[W, S]], entries: Sequence[Entry]) -> float:
    """Estimate the remaining time: a side takes as long as in another round, or else the mean of
    all runs so far."""
    took_s = {(entry.workload, entry.side): entry.took_s for entry in entries}
    mean_s = sum(took_s.values()) / len(took_s) if took_s else FIRST_GUESS_S
    return sum(took_s.get((step.workload.name, step.side.name), mean_s) for step in remaining)


def _say(text: str) -> None:
    sys.stdout.write(f"bench: {text}\n")
    sys.stdout.flush()
