"""Shows that the reward rises with every algorithm: the example job through all planes, and toys in
one process.

The toys are SRPO with and without history resampling, and Step-SRPO learning when not to think,
compared with one advantage per session. Their loop is that of `toy_training`: the platform's
batches, advantages, losses and DeepSpeed engine, without planes. Runs are divided into pieces, one
per (case, seed), which are kept in build/bench/algorithms/, so an interrupted run continues where
it was. `ALGORITHMS_CASES=grpo|dapo` restricts the cases; the table shows those that are complete
for all seeds.
"""

import itertools
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from seamlessflow.core.algorithms.options import AlgorithmName
from tests.benchmarks.example_jobs import jobs_run
from tests.benchmarks.report import Goal, Measured, Quantity, Row
from tests.benchmarks.toy_domains import ToyTask, edits, judged, sums
from tests.benchmarks.toy_training import ToyRun, warm_model

PIECES = Path("build/bench/algorithms")
SEEDS = (0, 1, 2)
NUM_UPDATES = 40
NUM_STAGED_UPDATES = 60
NUM_PER_DOMAIN = 32  # tasks: an epoch of two updates, then of four
EVALUATE_EVERY = 5  # updates
NUM_JUDGED_UPDATES, JUDGED_LEARNING_RATE = 320, 3e-4
# Thinking has to win by half of what it reaches: more than it costs to be wrong now and then, less than it gains on
# hard tasks. HiPO's 0.01 is the third judged case.
JUDGE_BIAS = 0.5
NUM_AVERAGED = 5  # updates at either end of a curve that a figure is the mean of
NUM_AVERAGED_OF_JOB = 3
WARM_STEPS = 150
EXAMPLE_JOB = "example job, "
TWO_DOMAINS, JUDGED = "srpo, two domains, ", "judged, "

Curve = list[dict[str, float]]
Run = Callable[[Path, int], Curve]


def _staged(num_first: int, num_all: int) -> Callable[[int], range]:
    """Use only the first domain for the first half, then both."""
    return lambda update: range(num_first if update < NUM_STAGED_UPDATES // 2 else num_all)


def cases() -> list[str]:
    return [*(EXAMPLE_JOB + name.value for name in AlgorithmName), *_toys()]


def _toys() -> dict[str, Run]:
    toys: dict[str, Run] = {
        name.value: _plain({"name": name.value})
        for name in AlgorithmName
        if name is not AlgorithmName.STEP_SRPO
    }
    toys[TWO_DOMAINS + "history"] = _two_domains(has_history=True)
    toys[TWO_DOMAINS + "no history"] = _two_domains(has_history=False)
    toys[JUDGED + "step_srpo"] = _judged({"name": "step_srpo", "judge": {"bias": JUDGE_BIAS}})
    toys[JUDGED + "one advantage"] = _judged({"name": "srpo", "sampling": {"history": False}})
    toys[JUDGED + "step_srpo, bias of HiPO"] = _judged({"name": "step_srpo"})
    return toys


def _plain(algorithm: dict[str, Any]) -> Run:
    def run(folder: Path, seed: int) -> Curve:
        model = warm_model(folder / "model", sums(), accuracy=0.35, num_steps=WARM_STEPS, seed=seed)
        return ToyRun(model, {**algorithm, "max_staleness": 0}, sums(), seed).train(NUM_UPDATES)

    return run


def _two_domains(*, has_history: bool) -> Run:
    def some(tasks: list[ToyTask], seed: int) -> list[ToyTask]:
        return random.Random(seed).sample(tasks, NUM_PER_DOMAIN)

    def run(folder: Path, seed: int) -> Curve:
        tasks = some(sums(), seed) + some(edits(), seed)
        model = warm_model(folder / "model", tasks, accuracy=0.35, num_steps=2 * WARM_STEPS, seed=seed)
        algorithm = {"name": "srpo", "sampling": {"history": has_history}}
        pools = _staged(NUM_PER_DOMAIN, len(tasks))
        toy = ToyRun(model, algorithm, tasks, seed, evaluate_every=EVALUATE_EVERY)
        return toy.train(NUM_STAGED_UPDATES, pools=pools)

    return run


def _judged(algorithm: dict[str, Any]) -> Run:
    def run(folder: Path, seed: int) -> Curve:
        tasks = judged(200, seed=seed)
        model = warm_model(folder / "model", tasks, accuracy=0.9, num_steps=4 * WARM_STEPS, seed=seed)
        toy = ToyRun(model, algorithm, tasks, seed, learning_rate=JUDGED_LEARNING_RATE)
        return toy.train(NUM_JUDGED_UPDATES)

    return run


def piece_path(case: str, seed: int) -> Path:
    return PIECES / f"{case.replace(', ', '-').replace(' ', '-')}-{seed}.json"


def pieces_make(wanted: Sequence[str]) -> None:
    """Run the missing pieces."""
    PIECES.mkdir(parents=True, exist_ok=True)
    missing = [(case, seed) for seed in SEEDS for case in wanted if not piece_path(case, seed).exists()]
    jobs = [(case, seed) for case, seed in missing if case.startswith(EXAMPLE_JOB)]
    toys = [piece for piece in missing if piece not in jobs]
    for case, seed, curve in itertools.chain(_jobs(jobs), _toy_runs(toys)):
        _keep(case, seed, curve)


def _jobs(wanted: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int, Curve]]:
    if not wanted:
        return
    named = [(AlgorithmName(case.removeprefix(EXAMPLE_JOB)), seed) for case, seed in wanted]
    for name, seed, curve in jobs_run(named):
        yield EXAMPLE_JOB + name.value, seed, curve


def _toy_runs(wanted: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int, Curve]]:
    if not wanted:
        return
    from seamlessflow_workers.train.step.process_group import process_group_start

    process_group_start()
    for case, seed in wanted:
        with tempfile.TemporaryDirectory() as folder:
            yield case, seed, _toys()[case](Path(folder), seed)


def _keep(case: str, seed: int, curve: Curve) -> None:
    beside = piece_path(case, seed).with_suffix(".part")
    beside.write_bytes(msgspec.json.encode(curve))
    beside.rename(piece_path(case, seed))
    num = _num_averaged(case)
    first, last = (_mean(part, "reward/mean") for part in (curve[:num], curve[-num:]))
    sys.stdout.write(f"{case}, seed {seed}: reward {first:.2f} → {last:.2f}\n")
    sys.stdout.flush()


def _num_averaged(case: str) -> int:
    return NUM_AVERAGED_OF_JOB if case.startswith(EXAMPLE_JOB) else NUM_AVERAGED


def _curves(case: str) -> list[Curve] | None:
    """Return the curves of all seeds, or None while one is missing."""
    paths = [piece_path(case, seed) for seed in SEEDS]
    if not all(path.exists() for path in paths):
        return None
    return [msgspec.json.decode(path.read_bytes(), type=list[dict[str, float]]) for path in paths]


def _mean(curve: Curve, metric: str) -> float:
    return statistics.fmean(point[metric] for point in curve if metric in point)


def _row(case: str, metric: str, curves: Sequence[Curve], goal: Goal | None = None) -> Row:
    num = _num_averaged(case)
    return Row(
        metric=f"{case}: {metric}",
        unit="mean",
        measured=Measured([_mean(curve[-num:], metric) for curve in curves]),
        baseline=f"its first {num} updates",
        baseline_measured=Measured([_mean(curve[:num], metric) for curve in curves]),
        goal=goal,
    )


async def measure() -> Sequence[Row]:
    wanted = [case for case in os.environ.get("ALGORITHMS_CASES", "").split("|") if case]
    # Installations and toys are driven by blocking calls; nothing else runs in this loop.
    pieces_make(wanted or cases())
    upward = Goal(1.0001, of=Quantity.RATIO)
    rows = []
    for case in cases():
        curves = _curves(case)
        if curves is None:
            continue
        rows.append(_row(case, "reward/mean", curves, upward))
        rows += [_row(case, name, curves) for name in _further_metrics(case)]
    return rows


def _further_metrics(case: str) -> tuple[str, ...]:
    if case.startswith(TWO_DOMAINS):
        return ("pool/reward", "pool/math/reward", "rollout/zero_variance_fraction")
    if case.startswith(JUDGED):
        per_domain = ("think", "reward", "tokens")
        by_domain = (f"{domain}/{name}" for domain in ("easy", "hard") for name in per_domain)
        return (*by_domain, "rollout/length_mean")
    return ()
