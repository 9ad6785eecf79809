"""Runs the example job through all planes, once per algorithm and seed, one job after the other on
one installation.

It takes (algorithm, seed) pairs and returns the metrics of each job's updates, as published. The
job is the demo's, but shorter and with the algorithm's unchanged preset; only name, seed and length
differ.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seamlessflow.cli.demo import example_spec
from seamlessflow.client import Client
from seamlessflow.core.algorithms.options import AlgorithmName
from tests.acceptance.models import example_model, example_tasks
from tests.acceptance.platform_process import new_platform

LEARNING_RATE = 2e-4
MAX_STALENESS = 3
MAX_NUM_SEQS = 12
NUM_UPDATES = 16
# The example has no judge of its own; to call the tool or not is the choice that its first tokens make.
CHOICE = {"end": "<tool_call>", "on": "<tool_call>"}

Curve = list[dict[str, float]]


def jobs_run(wanted: Iterable[tuple[AlgorithmName, int]]) -> Iterator[tuple[AlgorithmName, int, Curve]]:
    """Run the given jobs; yield each curve as soon as its job is completed. Raises JobStopped."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        files = {"model": example_model(root / "calculator"), "tasks": example_tasks(root / "tasks.jsonl")}
        with _installation(root) as client:
            for name, seed in wanted:
                job = client.job_wait(client.job_submit(job_spec(files, name, seed))["id"])
                yield name, seed, _curve(client.job_part(job["id"], "metrics")["metrics"])


def job_spec(files: dict[str, Path], name: AlgorithmName, seed: int) -> dict[str, Any]:
    spec = example_spec(files, engine="embedded", learning_rate=LEARNING_RATE, num_updates=NUM_UPDATES)
    spec["rollout"]["max_num_seqs"] = MAX_NUM_SEQS
    judge = {"judge": CHOICE} if name is AlgorithmName.STEP_SRPO else {}
    algorithm = {"name": name.value, "max_staleness": MAX_STALENESS, **judge}
    return spec | {"name": f"{name}, seed {seed}", "algorithm": algorithm, "seed": seed}


@contextmanager
def _installation(root: Path) -> Iterator[Client]:
    platform = new_platform(root / "home", model_root=root)
    platform.start()
    try:
        with platform.client() as client:
            yield client
    finally:
        platform.stop()


def _curve(metrics: dict[str, dict[str, list[float]]]) -> Curve:
    """Turn one series per metric into one mapping per step."""
    points: dict[float, dict[str, float]] = {}
    for name, series in metrics.items():
        for step, value in zip(series["step"], series["value"], strict=True):
            points.setdefault(step, {})[name] = value
    return [points[step] for step in sorted(points)]
