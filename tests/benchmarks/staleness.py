"""Compares how stale the trained tokens are if rollout runs ahead as far as the trainer needs, or to
the bound.

Both sides run the same job with a staleness bound of 3 on the same machines, one of which only
trains; they differ in `rollout.run_ahead`. The trainer is the bottleneck. One workload has an engine
and a trainer that sleep, and its batches are generated within one step, so the least staleness is 1.
The other is the demo's calculator job on two machines of one core each. Models stay as they are (the
learning rate is next to nothing), so that every version samples answers of the same lengths.
"""

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamlessflow.cli.demo import example_spec
from seamlessflow.cli.local.machines import SUPERVISOR
from seamlessflow.core.admission.rule import RunAhead
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from tests.acceptance.models import example_model, example_tasks
from tests.benchmarks.cluster.figures import THROUGHPUT, figures_of
from tests.benchmarks.cluster.layouts import BOUND, DISAGGREGATED, machines_of
from tests.benchmarks.cluster.running import Cluster, cluster_running
from tests.benchmarks.cluster.workloads import ENDLESS, Workload
from tests.benchmarks.measuring import Sample, interleaved
from tests.benchmarks.multiplexing import models_write
from tests.benchmarks.report import Bound, Goal, Quantity, Row
from tests.fakes.pace import Pace, pace_environment

FOLDER = Path("build/bench/staleness")
STALENESS = "mean staleness of trained tokens"
WAITING = "trainer without a batch"  # other work on the same cores changes it less than the throughput
MIN_THROUGHPUT = 0.97
NUM_ROUNDS = 3
NUM_VERSIONS, NUM_VERSIONS_SHORT = 16, 8
# An answer takes 2 s at most and all answers of a batch are sampled at once; a step takes 3 s.
PACED = Workload(
    ratio=1,
    num_machines=2,
    num_slots=128,
    groups_per_batch=8,
    num_versions=NUM_VERSIONS,
    num_rounds=NUM_ROUNDS,
    pace=Pace(step_s=0.004, load_s=0.05, wake_s=0.05, publish_s=0.05, train_token_s=3 / 4600),
)
LEARNING_RATE = 1e-9
# On two cores the demo's trainer is faster than its engine. These make the same step take longer.
SLOW_TRAINER = {"micro_batch_tokens": 128, "tree": False, "gradient_checkpointing": True}
KL_COEF = 0.02  # a reference model is asked about every token


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    max_staleness: float  # the goal
    module: str  # the program of its machines
    pace: Pace | None
    spec: Callable[[Cluster], Mapping[str, Any]]


async def measure(*, is_short: bool = False, folder: Path = FOLDER) -> Sequence[Row]:
    """Return three rows for each workload, `as_needed` against `to_bound`. Short: one round of fewer steps."""
    num_rounds, num_versions = (1, NUM_VERSIONS_SHORT) if is_short else (NUM_ROUNDS, NUM_VERSIONS)
    rows: list[Row] = []
    for case in CASES:
        async with _cluster(case, folder.absolute()) as cluster:
            sides = {
                side.value: functools.partial(_run, cluster, case, side, num_versions) for side in RunAhead
            }
            samples = await interleaved(sides, num_repeats=num_rounds, num_warm_ups=0)
        rows += [
            Row(
                f"{case.name}: {metric}",
                unit,
                samples[RunAhead.AS_NEEDED][metric],
                RunAhead.TO_BOUND,
                samples[RunAhead.TO_BOUND][metric],
                goal,
            )
            for metric, unit, goal in (
                (STALENESS, "versions", Goal(case.max_staleness, Bound.AT_MOST)),
                (THROUGHPUT, "tokens/s", Goal(MIN_THROUGHPUT, Bound.AT_LEAST, Quantity.RATIO)),
                (WAITING, "%", Goal(100 * (1 - MIN_THROUGHPUT), Bound.AT_MOST)),
            )
        ]
    return rows


@asynccontextmanager
async def _cluster(case: Case, folder: Path) -> AsyncIterator[Cluster]:
    machines = machines_of(PACED.num_machines, module=case.module, is_pinned=case.pace is None)
    environ = pace_environment(case.pace) if case.pace else {}
    async with cluster_running(folder / f"home-{case.name}", machines, environ=environ) as cluster:
        yield cluster


async def _run(cluster: Cluster, case: Case, side: RunAhead, num_versions: int) -> Sample:
    spec = dict(await asyncio.to_thread(case.spec, cluster))
    spec["rollout"] = {**spec["rollout"], "run_ahead": side.value}
    window = await cluster.run(DISAGGREGATED, spec, num_versions=num_versions)
    waiting_s = window.seconds.get((LedgerState.IDLE, IdleCause.NO_BATCH), 0.0)
    sample = {
        STALENESS: window.mean_staleness,
        THROUGHPUT: figures_of(window)[THROUGHPUT],
        WAITING: 100 * waiting_s / window.duration_s,
    }
    told = ", ".join(f"{metric} {value:,.2f}" for metric, value in sample.items())
    sys.stdout.write(f"staleness: {case.name}, {side}: {told}\n")
    sys.stdout.flush()
    return sample


def _paced_spec(cluster: Cluster) -> Mapping[str, Any]:
    return PACED.spec(*models_write(cluster, PACED), max_staleness=BOUND)


def _calculator_spec(cluster: Cluster) -> Mapping[str, Any]:
    models = cluster.stack.home.root / "models"
    if not (models / "tasks.jsonl").exists():
        models.mkdir(exist_ok=True)
        example_model(models / "calculator")
        example_tasks(models / "tasks.jsonl")
    files = {"model": models / "calculator", "tasks": models / "tasks.jsonl"}
    spec = example_spec(files, engine="embedded", learning_rate=LEARNING_RATE, num_updates=ENDLESS)
    spec["train"] |= SLOW_TRAINER
    spec["algorithm"]["kl_coef"] = KL_COEF
    return spec


CASES = (
    Case("paced", 1.2, "tests.benchmarks.cluster.paced_machine", PACED.pace, _paced_spec),
    Case("calculator", 1.5, SUPERVISOR, None, _calculator_spec),
)
