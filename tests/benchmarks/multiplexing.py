"""One job on three layouts: how near each comes to the work-conserving bound, and where the rest of the time goes.

The same job, seed and forced lengths on every side (`cluster.layouts`); the metric is tokens that entered the weights
within the staleness bound, per second. The bound is N machines that only ever generate or train, at the speeds that
the unbounded disaggregated side shows in the same round: N / (machine seconds of generation + of training, per trained
token). Twice: with real engines and trainer on machines of one core each, and, with an engine and a trainer that
sleep, on eight machines through the same planes.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

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
from tests.benchmarks.cluster.observing import PLANES, Window
from tests.benchmarks.cluster.running import Cluster, cluster_running
from tests.benchmarks.cluster.workloads import GROUP_SIZE, PACED, REAL, SEED, Workload
from tests.benchmarks.measuring import Sample, Samples, interleaved
from tests.benchmarks.report import Measured, Row
from tests.fakes.pace import pace_environment

FOLDER = Path("build/bench/multiplexing")
NUM_REPEATS = 3
NUM_TASKS = 400
NUM_CORES = len(os.sched_getaffinity(0))
HAND_OVER = ("switching", "syncing", "draining", "starting")
SHORT_UPDATES = 8

THROUGHPUT = "trained tokens"
ROLLOUT_S, TRAIN_S = "rollout, machine seconds", "training, machine seconds"
METRICS: Mapping[str, tuple[str, Callable[[Window], float]]] = {
    THROUGHPUT: ("tokens/s", lambda window: window.num_trained_tokens / window.duration_s),
    "discarded": ("%", lambda window: 100 * (1 - window.num_trained_tokens / window.num_settled_tokens)),
    "idle": ("%", lambda window: 100 * window.share("idle")),
    "idle or handing over": ("%", lambda window: 100 * window.share("idle", *HAND_OVER)),
    "cores taken by the planes": ("%", lambda window: 100 * window.cpu_share(PLANES, num_cores=NUM_CORES)),
    ROLLOUT_S: ("s/Mtoken", lambda window: 1e6 * window.seconds_of("serving") / window.num_sampled_tokens),
    TRAIN_S: ("s/Mtoken", lambda window: 1e6 * window.step_s / window.num_trained_tokens),
}
GAP = "gap to the bound"


async def measure(*, is_short: bool = False) -> Sequence[Row]:
    """Rows of every side against the synchronous disaggregated one. Short: three sides of one workload."""
    workloads = REAL[:1] if is_short else (*REAL, *PACED)
    rows: list[Row] = []
    for workload in workloads:
        sides = (MULTIPLEXED, SYNCHRONOUS, UNBOUNDED) if is_short else sides_of(workload)
        async with cluster_of(workload) as cluster:
            spec = spec_of(workload, num_updates=SHORT_UPDATES if is_short else workload.num_updates)
            runs = {side.name: functools.partial(sample, cluster, side, spec) for side in sides}
            samples = await interleaved(runs, num_repeats=NUM_REPEATS, num_warm_ups=0)
        rows += rows_of(workload, samples)
    return rows


def sides_of(workload: Workload) -> Sequence[Side]:
    """One machine trains a job: among eight, colocating them all would differ from multiplexing in its bound alone."""
    return SIDES if workload.pace is None else tuple(side for side in SIDES if side is not COLOCATED)


def cluster_of(workload: Workload) -> AbstractAsyncContextManager[Cluster]:
    module = "paced_machine" if workload.pace else "machine"
    machines = machines_of(
        workload.num_machines, module=f"tests.benchmarks.cluster.{module}", is_pinned=workload.pace is None
    )
    environ = pace_environment(workload.pace) if workload.pace else {}
    return cluster_running((FOLDER / "home").absolute(), machines, environ=environ)


def spec_of(workload: Workload, *, num_updates: int) -> Mapping[str, object]:
    """The job's spec, with its model and tasks made under the installation's folder of models."""
    from tests.benchmarks.cluster.endless_model import Shape, endless_model_write  # it loads torch

    models = (FOLDER / "home" / "models").absolute()
    model = endless_model_write(models / "endless", shape=Shape(), seed=SEED)
    tasks = tasks_write(
        models / f"long-tail-{workload.telling_every}.jsonl",
        num_tasks=NUM_TASKS,
        group_size=GROUP_SIZE,
        telling_every=workload.telling_every,
        seed=SEED,
    )
    return workload.spec(model, tasks, num_updates=num_updates)


async def sample(cluster: Cluster, side: Side, spec: Mapping[str, object]) -> Sample:
    window = await cluster.run(side, spec)
    return {name: of(window) for name, (_, of) in METRICS.items()}


def rows_of(workload: Workload, samples: Samples) -> list[Row]:
    """Every metric of every side; `samples` hold one value per round, rounds in the same order on all sides."""
    gaps = {side: gap_to_bound(measured, samples[UNBOUNDED.name], workload.num_machines)
            for side, measured in samples.items()}  # fmt: skip
    return [
        Row(f"{workload.name}; {side}: {metric}", unit, values[side], SYNCHRONOUS.name, values[SYNCHRONOUS.name])
        for metric, unit, values in (*_columns(samples), (GAP, "%", gaps))
        for side in samples
    ]  # fmt: skip


def gap_to_bound(
    measured: Mapping[str, Measured], alone: Mapping[str, Measured], num_machines: int
) -> Measured:
    """Per cent of the bound that is missing, round by round."""
    rounds = zip(measured[THROUGHPUT].values, alone[ROLLOUT_S].values, alone[TRAIN_S].values, strict=True)
    return Measured(
        [100 * (1 - rate * (rollout_s + train_s) / 1e6 / num_machines) for rate, rollout_s, train_s in rounds]
    )


def _columns(samples: Samples) -> list[tuple[str, str, dict[str, Measured]]]:
    return [
        (metric, unit, {side: measured[metric] for side, measured in samples.items()})
        for metric, (unit, _) in METRICS.items()
    ]
