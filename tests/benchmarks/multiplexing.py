"""Runs one job on three layouts: how near each comes to the work-conserving bound, and where the
rest of the time goes.

Every side has the same job, seed and forced lengths (`cluster.layouts`). The metrics are the tokens
per second that entered the weights within the staleness bound, and the gap to machines that only
work (`cluster.figures`). Everything is measured twice: with real engines and trainer on machines of
one core each, and on eight machines through the same planes with an engine and a trainer that
sleep. Tables of the measurements so far are in build/bench/multiplexing; an interrupted measurement
continues where it was (`cluster.journal`).
"""

import dataclasses
import functools
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from tests.benchmarks.cluster.figures import UNITS, columns_of, outcome_of
from tests.benchmarks.cluster.journal import Entry, Journal, digest_of
from tests.benchmarks.cluster.layouts import (
    COLOCATED,
    MULTIPLEXED,
    SIDES,
    SYNCHRONOUS,
    UNBOUNDED,
    Side,
    machines_of,
)
from tests.benchmarks.cluster.long_tail import tasks_write
from tests.benchmarks.cluster.rounds import Outcome, rounds_run, steps_of
from tests.benchmarks.cluster.running import Cluster, cluster_running
from tests.benchmarks.cluster.tables import tables_of
from tests.benchmarks.cluster.workloads import GROUP_SIZE, PACED, REAL, SEED, WORKLOADS, Workload
from tests.benchmarks.report import Measured, Row
from tests.fakes.pace import pace_environment
from tests.fixtures.repository import ROOT

FOLDER = Path("build/bench/multiplexing")
NUM_TASKS = 400
MEASURED_CODE = tuple(
    ROOT / part for part in ("platform", "workers", "tests/benchmarks/cluster", "tests/fakes")
)
SHORT_SIDES = (MULTIPLEXED, SYNCHRONOUS, UNBOUNDED)
SHORT_VERSIONS = 2


async def measure(*, is_short: bool = False, folder: Path = FOLDER) -> Sequence[Row]:
    """Return rows that compare every side with the synchronous disaggregated one. Short: three
    sides, once, real and paced."""
    workloads = [_shortened(of_kind[0]) for of_kind in (REAL, PACED)] if is_short else list(WORKLOADS)
    journal = Journal(
        folder / ("short" if is_short else "full"),
        digest=digest_of((workloads, SIDES, SEED, NUM_TASKS), MEASURED_CODE),
    )
    tables = journal.path.with_suffix(".md")
    await rounds_run(
        steps_of([(workload, SHORT_SIDES if is_short else sides_of(workload)) for workload in workloads]),
        journal,
        cluster_of=functools.partial(cluster_of, folder=folder.absolute()),
        run_of=run,
        after_each=lambda: tables.write_text(tables_of(journal.entries, workloads)),
    )
    sys.stdout.write(f"\n{tables.read_text()}\nmultiplexing: runs are kept in {journal.put_aside()}\n\n")
    return [row for workload in workloads for row in rows_of(workload, journal.entries)]


def _shortened(workload: Workload) -> Workload:
    return dataclasses.replace(workload, num_versions=SHORT_VERSIONS, num_rounds=1)


def sides_of(workload: Workload) -> Sequence[Side]:
    """One machine trains a job, so colocating all of eight would differ from multiplexing only in
    its bound."""
    return SIDES if workload.pace is None else tuple(side for side in SIDES if side is not COLOCATED)


def cluster_of(workload: Workload, folder: Path) -> AbstractAsyncContextManager[Cluster]:
    """Real and paced machines have separate homes, so nobody waits for those that the other
    registered."""
    home, module = ("paced", "paced_machine") if workload.pace else ("real", "machine")
    machines = machines_of(
        workload.num_machines, module=f"tests.benchmarks.cluster.{module}", is_pinned=workload.pace is None
    )
    environ = pace_environment(workload.pace) if workload.pace else {}
    return cluster_running(folder / f"home-{home}", machines, environ=environ)


async def run(cluster: Cluster, workload: Workload, side: Side) -> Outcome:
    """Run one job of the workload; its model and tasks are in the installation's folder of
    models."""
    model, tasks = models_write(cluster, workload)
    spec = workload.spec(model, tasks, max_staleness=side.max_staleness)
    return outcome_of(await cluster.run(side, spec, num_versions=workload.num_versions_of(side)))


def models_write(cluster: Cluster, workload: Workload) -> tuple[Path, Path]:
    """Write the workload's model and tasks into the installation's folder of models."""
    from tests.benchmarks.cluster.endless_model import Shape, endless_model_write  # it loads torch

    models = cluster.stack.home.root / "models"
    model = endless_model_write(models / "endless", shape=Shape(), seed=SEED)
    tasks = tasks_write(
        models / f"long-tail-{workload.telling_every}.jsonl",
        num_tasks=NUM_TASKS,
        group_size=GROUP_SIZE,
        telling_every=workload.telling_every,
        seed=SEED,
    )
    return model, tasks


def rows_of(workload: Workload, entries: Sequence[Entry]) -> list[Row]:
    """Return every metric of every side."""
    of_workload = [entry for entry in entries if entry.workload == workload.name]
    columns = columns_of(of_workload, num_machines=workload.num_machines)
    measured = {
        metric: {side: Measured(values, min_repeats=workload.num_rounds) for side, values in of_sides.items()}
        for metric, of_sides in columns.items()
    }
    return [
        Row(
            f"{workload.name}; {side}: {metric}",
            unit,
            values,
            SYNCHRONOUS.name,
            measured[metric][SYNCHRONOUS.name],
        )
        for metric, unit in UNITS.items()
        for side, values in measured[metric].items()
    ]
