"""The figures of each run's window, and how far they are from the work-conserving bound.

The bound is that of N machines that only ever generate or train: N / (W_rollout + W_train), where
each W is what this kind of work cost, in machine seconds per token, in the cheapest run of any
side. Disturbances, including other work on the same cores, only ever make a run more expensive, so
this is the bound of undisturbed work.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.benchmarks.cluster.journal import Entry
from tests.benchmarks.cluster.observing import OTHERS, PLANES, Window
from tests.benchmarks.cluster.rounds import Outcome

NUM_CORES = len(os.sched_getaffinity(0))
HAND_OVER = ("switching", "syncing", "draining", "starting")

THROUGHPUT = "trained tokens"
ROLLOUT_S, TRAIN_S = "rollout, machine seconds", "training, machine seconds"
MACHINES_CPU_S = "processor seconds of the machines"
GAP = "gap to the bound"
METRICS: Mapping[str, tuple[str, Callable[[Window], float]]] = {
    THROUGHPUT: ("tokens/s", lambda window: window.num_trained_tokens / window.duration_s),
    "discarded": ("%", lambda window: 100 * (1 - window.num_trained_tokens / window.num_finalized_tokens)),
    "idle": ("%", lambda window: 100 * window.share("idle")),
    "idle or handing over": ("%", lambda window: 100 * window.share("idle", *HAND_OVER)),
    "cores taken by the planes": ("%", lambda window: 100 * window.cpu_share(PLANES, num_cores=NUM_CORES)),
    "cores taken by others": ("%", lambda window: 100 * window.cpu_share([OTHERS], num_cores=NUM_CORES)),
    ROLLOUT_S: ("s/Mtoken", lambda window: 1e6 * window.seconds_of("serving") / window.num_sampled_tokens),
    TRAIN_S: ("s/Mtoken", lambda window: 1e6 * window.step_s / window.num_trained_tokens),
    MACHINES_CPU_S: ("s/Mtoken", lambda window: 1e6 * window.machines_cpu_s / window.num_trained_tokens),
}
UNITS: Mapping[str, str] = {**{name: unit for name, (unit, _) in METRICS.items()}, GAP: "%"}


def figures_of(window: Window) -> dict[str, float]:
    return {name: of(window) for name, (_, of) in METRICS.items()}


def outcome_of(window: Window) -> Outcome:
    return Outcome(figures_of(window), window.time_shares(), window.cpu_shares)


def bound_of(runs: Iterable[Mapping[str, float]], *, num_machines: int) -> float:
    """Return the trained tokens per second of machines that only work, from the figures of all runs
    of one workload."""
    figures = list(runs)
    machine_s_per_token = sum(min(run[work] for run in figures) for work in (ROLLOUT_S, TRAIN_S)) / 1e6
    return num_machines / machine_s_per_token


def columns_of(entries: Sequence[Entry], *, num_machines: int) -> dict[str, dict[str, list[float]]]:
    """Return values by metric, then by side, with one value per round. One of the metrics is the
    gap to the bound in per cent."""
    columns: dict[str, dict[str, list[float]]] = {metric: {} for metric in UNITS}
    bound = bound_of((entry.figures for entry in entries), num_machines=num_machines)
    for entry in sorted(entries, key=lambda entry: entry.round):
        gap = 100 * (1 - entry.figures[THROUGHPUT] / bound)
        for metric, value in {**entry.figures, GAP: gap}.items():
            columns[metric].setdefault(entry.side, []).append(value)
    return columns
