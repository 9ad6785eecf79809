"""Measures what one scheduling decision costs, in processor time, on fleets of three sizes.

A fleet has machines of four kinds, a fifth of them for agents; a tenth of its jobs train on four machines together,
and three in ten wait for a machine of which there are few. Before each measurement one job in a hundred has changed, as
between two cycles. The larger fleet has ten times the machines and ten times the jobs. `decide` is measured as the
leader calls it, and `preview` as a person calls it who retags a machine. Whole cycles on a database, with their
statements, are measured by `scheduler_cycles`, each fleet on a database of its own.
"""

import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.explain.dry_run import obeyed
from seamlessflow.core.scheduling.explain.preview import preview
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, Snapshot
from seamlessflow.core.types.desired_state import MachineEdit
from tests.benchmarks.report import Bound, Goal, Measured, Quantity, Row
from tests.benchmarks.web_world import web_world
from tests.fixtures.repository import ROOT

SEED = 0
CYCLE_PARTS = {
    "snapshot_ms": "ms",
    "decide_ms": "ms",
    "write_ms": "ms",
    "wall_ms": "ms",
    "num_decisions": "decisions",
    "num_statements": "statements",
}
NUM_ROUNDS = 4  # until the fleet is at work
NUM_DECISIONS = 21
NUM_PREVIEWS = 3
LARGEST_GOAL_MS = 100.0
GROWTH_GOAL = 13.0
GC_THRESHOLDS = (20_000, 20, 50)
SANDBOX_EVERY = 200  # machines; a job in twenty finds such a one for its agents
SANDBOXED_PERCENT = 35  # of the jobs need one, so three in ten wait
SPREAD = 37
KINDS = (("rollout", "train"), ("rollout",), ("rollout", "train", "gpu=h100"), ("rollout", "gpu=h100"))


@dataclass(frozen=True)
class Size:
    num_machines: int
    num_jobs: int

    def __str__(self) -> str:
        return f"{self.num_machines} machines × {self.num_jobs} jobs"


SIZES = (Size(100, 10), Size(1000, 100), Size(10_000, 1000))


async def measure() -> Sequence[Row]:
    gc.set_threshold(*GC_THRESHOLDS)  # as the scheduler's process does
    chance = random.Random(SEED)
    decisions, previews = {}, {}
    for size in SIZES:
        snapshot = at_work(fleet(size, chance))
        decisions[size] = Measured(
            [_cost_ms(partial(decide, changed(snapshot, chance))) for _ in range(NUM_DECISIONS)]
        )
        edit = {snapshot.machines[0].id: MachineEdit(tags=["rollout"])}
        previews[size] = Measured([_cost_ms(partial(preview, snapshot, edit)) for _ in range(NUM_PREVIEWS)])
    cycles = [await _cycles(size) for size in SIZES]
    return [
        *_rows("decide", decisions, LARGEST_GOAL_MS),
        *_rows("preview", previews, None),
        *_cycle_rows(cycles),
    ]


async def _cycles(size: Size) -> Sequence[Mapping[str, float]]:
    async with web_world() as world:
        command = [sys.executable, "-m", "tests.benchmarks.scheduler_cycles", str(world.data.job_id)]
        process = await asyncio.create_subprocess_exec(
            *command, str(size.num_machines), str(size.num_jobs),
            env={**world.environ, "PYTHONPATH": f"{ROOT}:{world.environ['PYTHONPATH']}"},
            cwd=ROOT, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        told, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    cycles: Sequence[Mapping[str, float]] = json.loads(told.splitlines()[-1])
    return cycles


def _cycle_rows(cycles: Sequence[Sequence[Mapping[str, float]]]) -> list[Row]:
    rows = []
    for part, unit in CYCLE_PARTS.items():
        measured = [Measured([cycle[part] for cycle in of_size]) for of_size in cycles]
        for (smaller, before), (size, now) in pairwise(zip(SIZES, measured, strict=True)):
            goal = Goal(1.0, Bound.AT_MOST, Quantity.RATIO) if part == "num_statements" else None
            rows.append(Row(f"cycle, {part}, {size}", unit, now, str(smaller), before, goal))
    return rows


def _rows(name: str, measured: dict[Size, Measured], goal_ms: float | None) -> list[Row]:
    rows = []
    for smaller, size in pairwise(SIZES):
        goal = Goal(GROWTH_GOAL, Bound.AT_MOST, Quantity.RATIO) if size == SIZES[-1] and goal_ms else None
        rows.append(Row(f"{name}, {size}", "ms", measured[size], str(smaller), measured[smaller], goal))
    if goal_ms is not None:
        slow = Measured([sorted(measured[SIZES[-1]].values)[-2]] * 3)
        goal = Goal(goal_ms, Bound.AT_MOST)
        rows.append(Row(f"{name}, p95 of {SIZES[-1]}", "ms", slow, "the median", measured[SIZES[-1]], goal))
    return rows


def _cost_ms(act: Callable[[], object]) -> float:
    began_s = time.process_time()
    act()
    return (time.process_time() - began_s) * 1000


def fleet(size: Size, chance: random.Random) -> Snapshot:
    machines = [
        MachineView(
            id=UUID(int=10_000_000 + number),
            name=f"machine-{number:05}",
            tags=frozenset(_tags(number)),
        )
        for number in range(size.num_machines)
    ]
    jobs = [
        JobView(
            id=UUID(int=number + 1),
            name=f"job {number}",
            order=number,
            state=JobState.QUEUED,
            group_size=8,
            groups_per_batch=8,
            num_updates=100,
            num_train_machines=4 if number % 10 == 0 else 1,
            train_tags=frozenset({"gpu=h100"} if number % 3 == 0 else ()),
            agent_tags=frozenset({"sandbox"} if number * SPREAD % 100 < SANDBOXED_PERCENT else ()),
            project_id=UUID(int=number % 7 + 1),
            weight=chance.choice([1.0, 2.0]),
            slots_per_engine=8,
            engines_wanted=chance.choice([None, 2, 8, 25]),
        )
        for number in range(size.num_jobs)
    ]
    return Snapshot(machines=tuple(machines), jobs=tuple(jobs))


def _tags(number: int) -> Sequence[str]:
    if number % 5:
        return KINDS[number % 4]
    return ("agent", "sandbox") if number % SANDBOX_EVERY == 0 else ("agent",)


def at_work(snapshot: Snapshot) -> Snapshot:
    for _ in range(NUM_ROUNDS):
        snapshot = obeyed(snapshot, decide(snapshot))
    return snapshot


def changed(snapshot: Snapshot, chance: random.Random) -> Snapshot:
    """Return the snapshot after a batch has become ready for one job in a hundred, at least one."""
    due = set(chance.sample(range(len(snapshot.jobs)), max(1, len(snapshot.jobs) // 100)))
    jobs = (
        replace(job, num_ready_groups=job.groups_per_batch) if place in due else job
        for place, job in enumerate(snapshot.jobs)
    )
    return replace(snapshot, jobs=tuple(jobs))
