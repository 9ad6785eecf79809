"""Every algorithm trains a toy upward; SRPO with and without history resampling; Step-SRPO learns when not to think.

The loop is that of `toy_training`: the platform's batches, advantages, losses and DeepSpeed engine, no planes. Runs are
cut into pieces, one (case, seed) each, kept in build/bench/algorithms/: an interrupted run goes on where it was.
`ALGORITHMS_CASES=grpo,dapo` restricts it; the table shows what is there for all seeds.
"""

import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from seamlessflow.core.algorithms.options import AlgorithmName
from tests.benchmarks.report import Goal, Measured, Quantity, Row
from tests.benchmarks.toy_domains import edits, judged, sums
from tests.benchmarks.toy_training import ToyRun, warm_model

PIECES = Path("build/bench/algorithms")
SEEDS = (0, 1, 2)
NUM_UPDATES = 40
NUM_STAGED_UPDATES = 60
NUM_AVERAGED = 5  # updates at either end of a curve that a figure is the mean of
WARM_STEPS = 150

Curve = list[dict[str, float]]


def _staged(num_first: int, num_all: int) -> Callable[[int], range]:
    """The first domain alone for the first half, then both."""
    return lambda update: range(num_first if update < NUM_STAGED_UPDATES // 2 else num_all)


def run_piece(case: str, seed: int) -> Curve:
    with tempfile.TemporaryDirectory() as folder:
        return _runs()[case](Path(folder), seed)


def _runs() -> dict[str, Callable[[Path, int], Curve]]:
    runs: dict[str, Callable[[Path, int], Curve]] = {
        name.value: _plain({"name": name.value})
        for name in AlgorithmName
        if name is not AlgorithmName.STEP_SRPO
    }
    runs["srpo, two domains, history"] = _two_domains(has_history=True)
    runs["srpo, two domains, no history"] = _two_domains(has_history=False)
    runs["step_srpo"] = _judged({"name": "step_srpo"})
    runs["step_srpo, one advantage"] = _judged({"name": "srpo"})
    return runs


def _plain(algorithm: dict[str, Any]) -> Callable[[Path, int], Curve]:
    def run(folder: Path, seed: int) -> Curve:
        model = warm_model(folder / "model", sums(), accuracy=0.35, num_steps=WARM_STEPS, seed=seed)
        return ToyRun(model, {**algorithm, "max_staleness": 0}, sums(), seed).train(NUM_UPDATES)

    return run


def _two_domains(*, has_history: bool) -> Callable[[Path, int], Curve]:
    def run(folder: Path, seed: int) -> Curve:
        tasks = sums() + edits()
        model = warm_model(folder / "model", tasks, accuracy=0.35, num_steps=2 * WARM_STEPS, seed=seed)
        algorithm = {"name": "srpo", "sampling": {"history": has_history}}
        pools = _staged(len(sums()), len(tasks))
        return ToyRun(model, algorithm, tasks, seed).train(NUM_STAGED_UPDATES, pools=pools)

    return run


def _judged(algorithm: dict[str, Any]) -> Callable[[Path, int], Curve]:
    def run(folder: Path, seed: int) -> Curve:
        tasks = judged(200, seed=seed)
        model = warm_model(folder / "model", tasks, accuracy=0.9, num_steps=4 * WARM_STEPS, seed=seed)
        return ToyRun(model, algorithm, tasks, seed).train(NUM_STAGED_UPDATES)

    return run


def piece_path(case: str, seed: int) -> Path:
    return PIECES / f"{case.replace(', ', '-').replace(' ', '-')}-{seed}.json"


def pieces_make(cases: Sequence[str]) -> None:
    """Run what is missing."""
    from seamlessflow_workers.train.distributed import process_group_start

    PIECES.mkdir(parents=True, exist_ok=True)
    missing = [(case, seed) for case in cases for seed in SEEDS if not piece_path(case, seed).exists()]
    if missing:
        process_group_start()
    for case, seed in missing:
        curve = run_piece(case, seed)
        beside = piece_path(case, seed).with_suffix(".part")
        beside.write_bytes(msgspec.json.encode(curve))
        beside.rename(piece_path(case, seed))
        print(f"{case}, seed {seed}: reward {_mean(curve[:NUM_AVERAGED], 'reward/mean'):.2f} → "
              f"{_mean(curve[-NUM_AVERAGED:], 'reward/mean'):.2f}", flush=True)  # fmt: skip


def _curves(case: str) -> list[Curve] | None:
    """Of all seeds; None while one is missing."""
    paths = [piece_path(case, seed) for seed in SEEDS]
    if not all(path.exists() for path in paths):
        return None
    return [msgspec.json.decode(path.read_bytes(), type=list[dict[str, float]]) for path in paths]


def _mean(curve: Curve, metric: str) -> float:
    return statistics.fmean(point[metric] for point in curve if metric in point)


def _row(case: str, metric: str, curves: Sequence[Curve], goal: Goal | None = None) -> Row:
    return Row(
        metric=f"{case}: {metric}",
        unit="mean",
        measured=Measured([_mean(curve[-NUM_AVERAGED:], metric) for curve in curves]),
        baseline=f"its first {NUM_AVERAGED} updates",
        baseline_measured=Measured([_mean(curve[:NUM_AVERAGED], metric) for curve in curves]),
        goal=goal,
    )


async def measure() -> Sequence[Row]:
    wanted = os.environ.get("ALGORITHMS_CASES", "")
    cases = [case for case in wanted.split(",") if case] or list(_runs())
    pieces_make(cases)
    upward = Goal(1.0001, of=Quantity.RATIO)
    rows = []
    for case in _runs():
        curves = _curves(case)
        if curves is None:
            continue
        rows.append(_row(case, "reward/mean", curves, upward))
        if "two domains" in case:
            rows += [_row(case, "math/reward", curves), _row(case, "rollout/zero_variance_fraction", curves)]
        if case.startswith("step_srpo"):
            names = ("easy/think", "hard/think", "rollout/length_mean", "easy/reward", "hard/reward")
            rows += [_row(case, name, curves) for name in names]
    return rows
