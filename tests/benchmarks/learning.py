"""How soon a policy learns: the whole platform against TRL's GRPOTrainer and against one process without planes.

Same model, tasks, group size, groups per update, sampling and learning rate; two cores for whoever runs. Time counts
from what a person starts: the submission of a job to a platform that is up (the demo's layout), the start of a
process for the others. Reached is a mean reward when the mean of three updates in a row is. Of TRL the best of three
settings is taken. The curves are written beside the rows.
"""

import asyncio
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from deploy.local.peers_environment import ensure
from seamlessflow.cli.demo import example_spec
from tests.acceptance.models import example_model, example_tasks
from tests.acceptance.platform_process import PlatformProcess, new_platform
from tests.benchmarks.learners.trl_grpo import SETTINGS
from tests.benchmarks.measuring import ROOT, Sample, interleaved
from tests.benchmarks.report import Bound, Goal, Quantity, Row

NUM_UPDATES = 40
NUM_REPEATS = 3
LEARNING_RATE = 2e-4
TARGET = 0.8
WINDOW = 3  # updates
CURVES = ROOT / "build" / "bench" / "learning-curves.json"
OURS, PROTOTYPE = "the whole platform", "one process without planes"


class Point(msgspec.Struct, frozen=True):
    """Mean reward of the sessions of one update."""

    at_s: float
    reward: float


Curve = Sequence[Point]


def time_to(curve: Curve, reward: float) -> float:
    """Seconds until the mean of `WINDOW` updates in a row reaches `reward`; infinite if it never does."""
    for end in range(WINDOW, len(curve) + 1):
        if statistics.fmean(point.reward for point in curve[end - WINDOW : end]) >= reward:
            return curve[end - 1].at_s
    return math.inf


def sample_of(curve: Curve) -> Sample:
    rewards = [point.reward for point in curve]
    return {
        "time": time_to(curve, TARGET),
        "update": (curve[-1].at_s - curve[0].at_s) / (len(curve) - 1),
        "last": statistics.fmean(rewards[-len(rewards) // 10 :]),
    }


@dataclass(slots=True)
class Learners:
    model: Path
    tasks: Path
    platform: PlatformProcess
    trl_python: Path
    curves: dict[str, list[Curve]]

    async def ours(self) -> Sample:
        return self._keep(OURS, await asyncio.to_thread(self._job))

    async def prototype(self) -> Sample:
        module = ("-m", "tests.benchmarks.learners.single_process")
        return self._keep(PROTOTYPE, await self._program(Path(sys.executable), *module))

    async def trl(self, setting: str) -> Sample:
        program = str(Path(__file__).parent / "learners" / "trl_grpo.py")
        curve = await self._program(self.trl_python, program, "--setting", setting)
        return self._keep(f"TRL, {setting}", curve)

    def _keep(self, name: str, curve: Curve) -> Sample:
        self.curves.setdefault(name, []).append(curve)
        return sample_of(curve)

    def _job(self) -> Curve:
        files = {"model": self.model, "tasks": self.tasks}
        spec = example_spec(files, engine="embedded", learning_rate=LEARNING_RATE, num_updates=NUM_UPDATES)
        with self.platform.client() as client:
            job = client.job_wait(client.job_submit(spec)["id"])
            submitted_at = datetime.fromisoformat(job["created_at"])
            versions: list[dict[str, Any]] = client.job_part(job["id"], "versions", limit=200)["results"]
            rewards = client.job_part(job["id"], "metrics", names="reward/mean")["metrics"]["reward/mean"]
        published = {
            version["version"]: datetime.fromisoformat(version["published_at"]) for version in versions
        }
        return [
            Point((published[step] - submitted_at).total_seconds(), reward)
            for step, reward in zip(rewards["step"], rewards["value"], strict=True)
        ]

    async def _program(self, python: Path, *arguments: str) -> Curve:
        process = await asyncio.create_subprocess_exec(
            str(python), *arguments,
            "--model", str(self.model), "--tasks", str(self.tasks),
            "--updates", str(NUM_UPDATES), "--learning-rate", str(LEARNING_RATE),
            cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, complained = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"{arguments} ended with {process.returncode}: {complained.decode()[-2000:]}")
        return [
            msgspec.json.decode(line, type=Point) for line in said.splitlines() if line.startswith(b'{"at_s')
        ]


async def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        model = example_model(root / "calculator")
        tasks = root / "tasks.jsonl"
        example_tasks(tasks)
        platform = new_platform(root / "home", model_root=root)
        platform.start()
        try:
            return await _measure(Learners(model, tasks, platform, ensure(), {}))
        finally:
            platform.stop()


async def _measure(learners: Learners) -> list[Row]:
    first = {setting: (await learners.trl(setting))["time"] for setting in SETTINGS}
    best = min(first, key=first.__getitem__)
    trl = f"TRL, {best}"
    sides = {OURS: learners.ours, trl: lambda: learners.trl(best), PROTOTYPE: learners.prototype}
    samples = await interleaved(sides, num_repeats=NUM_REPEATS)
    CURVES.parent.mkdir(parents=True, exist_ok=True)
    CURVES.write_bytes(msgspec.json.encode(learners.curves))
    ours = samples[OURS]

    def row(metric: str, key: str, unit: str, baseline: str, goal: Goal | None = None) -> Row:
        return Row(metric, unit, ours[key], baseline, samples[baseline][key], goal)

    reached = f"time to a mean reward of {TARGET}"
    return [
        row(reached, "time", "s", trl, Goal(1 / 3, Bound.AT_MOST, Quantity.RATIO)),
        row(reached, "time", "s", PROTOTYPE, Goal(1.5, Bound.AT_MOST, Quantity.RATIO)),
        row("time of an update", "update", "s", trl),
        row("time of an update", "update", "s", PROTOTYPE),
        row("reward of the last tenth", "last", "mean", trl),
        row("reward of the last tenth", "last", "mean", PROTOTYPE),
    ]
