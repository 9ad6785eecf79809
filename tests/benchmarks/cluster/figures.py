"""What is told of each run: figures of a window, and how far they are from the work-conserving bound.

The bound is N machines that only ever generate or train, at the speeds that the unbounded disaggregated side shows in
the same round: N / (machine seconds of generation + of training, per trained token).
"""

import os
from collections.abc import Callable, Mapping, Sequence

from tests.benchmarks.cluster.journal import Entry
from tests.benchmarks.cluster.layouts import UNBOUNDED
from tests.benchmarks.cluster.observing import PLANES, Window

NUM_CORES = len(os.sched_getaffinity(0))
HAND_OVER = ("switching", "syncing", "draining", "starting")

THROUGHPUT = "trained tokens"
ROLLOUT_S, TRAIN_S = "rollout, machine seconds", "training, machine seconds"
MACHINES_CPU_S = "processor seconds of the machines"
GAP = "gap to the bound"
METRICS: Mapping[str, tuple[str, Callable[[Window], float]]] = {
    THROUGHPUT: ("tokens/s", lambda window: window.num_trained_tokens / window.duration_s),
    "discarded": ("%", lambda window: 100 * (1 - window.num_trained_tokens / window.num_settled_tokens)),
    "idle": ("%", lambda window: 100 * window.share("idle")),
    "idle or handing over": ("%", lambda window: 100 * window.share("idle", *HAND_OVER)),
    "cores taken by the planes": ("%", lambda window: 100 * window.cpu_share(PLANES, num_cores=NUM_CORES)),
    ROLLOUT_S: ("s/Mtoken", lambda window: 1e6 * window.seconds_of("serving") / window.num_sampled_tokens),
    TRAIN_S: ("s/Mtoken", lambda window: 1e6 * window.step_s / window.num_trained_tokens),
    MACHINES_CPU_S: ("s/Mtoken", lambda window: 1e6 * window.machines_cpu_s / window.num_trained_tokens),
}
UNITS: Mapping[str, str] = {**{name: unit for name, (unit, _) in METRICS.items()}, GAP: "%"}


def figures_of(window: Window) -> dict[str, float]:
    return {name: of(window) for name, (_, of) in METRICS.items()}


def gap_to_bound(measured: Mapping[str, float], alone: Mapping[str, float], *, num_machines: int) -> float:
    """Per cent of the bound that is missing. `alone` are the unbounded side's figures."""
    machine_s_per_token = (alone[ROLLOUT_S] + alone[TRAIN_S]) / 1e6
    return 100 * (1 - measured[THROUGHPUT] * machine_s_per_token / num_machines)


def columns_of(entries: Sequence[Entry], *, num_machines: int) -> dict[str, dict[str, list[float]]]:
    """Values by metric, then side, a value for each round; the gap only of rounds that have the bound."""
    columns: dict[str, dict[str, list[float]]] = {metric: {} for metric in UNITS}
    alone = {entry.round: entry.figures for entry in entries if entry.side == UNBOUNDED.name}
    for entry in sorted(entries, key=lambda entry: entry.round):
        figures = dict(entry.figures)
        if entry.round in alone:
            figures[GAP] = gap_to_bound(figures, alone[entry.round], num_machines=num_machines)
        for metric, value in figures.items():
            columns[metric].setdefault(entry.side, []).append(value)
    return columns
