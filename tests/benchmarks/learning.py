"""Measures how fast a policy learns: the whole platform, TRL's GRPOTrainer, and one process without
planes.

All sides have the same model, tasks, group size, groups per update, sampling, loss, optimizer and
learning rate. They use the same two cores, one after the other, in an order that rotates. A mean
reward counts as reached when the mean of three consecutive updates reaches it. TRL uses the best of
its settings (`learners.trl_grpo.SETTINGS`); the platform uses what is best on two cores (`LAYOUT`,
`OURS_ONLY`), which does not change tasks, model, groups, sampling or optimizer.

A process's clock begins with its start. The platform's clock begins when a job is submitted to a
running, idle installation, so it includes the start of engines, trainer and agents; the row "from
`up`" begins with the start of a new installation, including its database. An installation runs only
while it is measured. The curves are written beside the rows.
"""

import asyncio
import contextlib
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import psutil

from deploy.local.peers_environment import ensure
from seamlessflow.cli.demo import example_spec
from seamlessflow.client import Client
from tests.acceptance.models import example_model, example_tasks
from tests.acceptance.platform_process import PlatformProcess, new_platform
from tests.benchmarks.learners.trl_grpo import SETTINGS
from tests.benchmarks.measuring import Sample, interleaved
from tests.benchmarks.report import Bound, Goal, Quantity, Row
from tests.fixtures.repository import ROOT

NUM_CORES = 2
NUM_UPDATES = 32
NUM_REPEATS = 3
LEARNING_RATE = 2e-4
# The loss of the other two: advantages divided by the group's deviation, one clip range for both sides.
ALGORITHM = {"advantage_norm": "mean_std", "clip_high": 0.2}
# A trainer of its own beside one engine: the planes use what either leaves of its core, and nothing is handed over.
LAYOUT = "disaggregated"
# Batches at most one version old; all sessions of two batches under way, those of one decoded at once.
OURS_ONLY = {
    "algorithm": {"max_staleness": 1},
    "rollout": {"max_num_seqs": 64, "max_concurrent_sessions": 128},
}
TARGET = 0.8
WINDOW = 3  # updates
SHOWN_EVERY_S = 4.0
DEADLINE_S = 120.0  # of one program; what it has told by then is its curve
IDLE_WINDOW_S = 1.0
NUM_IDLE_WINDOWS = 4  # one alone may fall between the start of a supervisor and its imports
IDLE_SHARE = 0.25  # of one core: what heartbeats, polls and the database do while nothing runs
IDLE_DEADLINE_S = 60.0
CURVES = ROOT / "build" / "bench" / "learning-curves.json"
OURS, PROTOTYPE = "the whole platform", "one process without planes"


class Point(msgspec.Struct, frozen=True):
    """The mean reward of the sessions of one update."""

    at_s: float
    reward: float


Curve = Sequence[Point]


def updates_to(curve: Curve, reward: float) -> int | None:
    """Return the number of updates until the mean of `WINDOW` consecutive ones reaches `reward`, or
    None if it never does."""
    for end in range(WINDOW, len(curve) + 1):
        if statistics.fmean(point.reward for point in curve[end - WINDOW : end]) >= reward:
            return end
    return None


def time_to(curve: Curve, reward: float) -> float:
    """Return the seconds until then, or infinity if it never happens."""
    end = updates_to(curve, reward)
    return math.inf if end is None else curve[end - 1].at_s


def sample_of(curve: Curve, *, seconds_before: float = 0.0) -> Sample:
    """Return the figures of one run. `seconds_before` is the time from the start of the
    installation to that of the curve's clock."""
    rewards = [point.reward for point in curve]
    reached_s = time_to(curve, TARGET)
    return {
        "time": reached_s,
        "time_from_up": seconds_before + reached_s,
        "first": curve[0].at_s,
        "time_after_first": reached_s - curve[0].at_s,
        "updates": updates_to(curve, TARGET) or math.inf,
        "update": (curve[-1].at_s - curve[0].at_s) / (len(curve) - 1),
        "last": statistics.fmean(rewards[-len(rewards) // 10 :]),
    }


@dataclass(slots=True)
class Learners:
    """The sides; each call is one run, reported on standard output and kept in `curves`."""

    model: Path
    tasks: Path
    trl_python: Path | None
    curves: dict[str, list[Curve]] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)

    async def ours(self) -> Sample:
        """Run a new installation each time, so that nothing is left of the last one."""
        with tempfile.TemporaryDirectory() as home:
            platform = new_platform(Path(home) / "home", model_root=self.model.parent)
            started_at = time.time()
            platform.start("--layout", LAYOUT)
            try:
                await asyncio.to_thread(_until_idle, platform)
                submitted_at, curve = await asyncio.to_thread(self._job, platform.client)
            finally:
                platform.stop()
        return self._keep(OURS, curve, seconds_before=submitted_at - started_at)

    async def prototype(self) -> Sample:
        module = ("-m", "tests.benchmarks.learners.single_process")
        return self._keep(PROTOTYPE, await self._program(Path(sys.executable), *module))

    async def trl(self, setting: str) -> Sample:
        assert self.trl_python is not None
        program = str(Path(__file__).parent / "learners" / "trl_grpo.py")
        curve = await self._program(self.trl_python, program, "--setting", setting)
        return self._keep(f"TRL, {setting}", curve)

    def _keep(self, name: str, curve: Curve, *, seconds_before: float = 0.0) -> Sample:
        self.curves.setdefault(name, []).append(curve)
        sample = sample_of(curve, seconds_before=seconds_before)
        told = ", ".join(f"{metric} {value:.2f}" for metric, value in sample.items())
        sys.stdout.write(f"[{time.monotonic() - self.began_s:4.0f} s] {name}: {told}\n")
        sys.stdout.flush()
        return sample

    def _job(self, connect: Callable[[], Client]) -> tuple[float, Curve]:
        """Return when the job was submitted (Unix time), and its curve from then on."""
        files = {"model": self.model, "tasks": self.tasks}
        spec = example_spec(files, engine="embedded", learning_rate=LEARNING_RATE, num_updates=NUM_UPDATES)
        spec["algorithm"] |= ALGORITHM
        for section, options in OURS_ONLY.items():
            spec[section] |= options
        with connect() as client:
            job = client.job_wait(client.job_submit(spec)["id"])
            versions: list[dict[str, Any]] = client.job_part(job["id"], "versions", limit=200)["results"]
            rewards = client.job_part(job["id"], "metrics", names="reward/mean")["metrics"]["reward/mean"]
        submitted_at = datetime.fromisoformat(job["created_at"]).timestamp()
        published = {
            version["version"]: datetime.fromisoformat(version["published_at"]).timestamp()
            for version in versions
        }
        return submitted_at, [
            Point(published[step] - submitted_at, reward)
            for step, reward in zip(rewards["step"], rewards["value"], strict=True)
        ]

    async def _program(self, python: Path, *arguments: str) -> Curve:
        """Return what a program reported about its updates until it ended, or was ended after
        `DEADLINE_S`."""
        curve: list[Point] = []
        with tempfile.TemporaryFile() as complaints:
            process = await asyncio.create_subprocess_exec(
                str(python), *arguments,
                "--model", str(self.model), "--tasks", str(self.tasks),
                "--updates", str(NUM_UPDATES), "--learning-rate", str(LEARNING_RATE),
                cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=asyncio.subprocess.PIPE, stderr=complaints,
            )  # fmt: skip
            assert process.stdout is not None
            try:
                async with asyncio.timeout(DEADLINE_S) as deadline:
                    async for line in process.stdout:
                        curve += [msgspec.json.decode(line, type=Point)] if line.startswith(b'{"at_s') else []
                    await process.wait()
            except TimeoutError:
                pass  # what it told counts
            finally:
                if process.returncode is None:
                    process.kill()
                status = await process.wait()
            complaints.seek(0)
            if len(curve) < WINDOW or (status != 0 and not deadline.expired()):
                said = complaints.read().decode(errors="replace")[-2000:]
                raise RuntimeError(f"{arguments} ended with {status} after {len(curve)} updates: {said}")
        return curve


def _until_idle(platform: PlatformProcess) -> None:
    """Wait until the installation has nothing else to do: after the start, its supervisors import
    what children will need."""
    num_idle, used_s = 0, _processor_s(platform)
    deadline_s = time.monotonic() + IDLE_DEADLINE_S
    while num_idle < NUM_IDLE_WINDOWS:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the installation was still busy {IDLE_DEADLINE_S:.0f} s after its start")
        time.sleep(IDLE_WINDOW_S)
        before_s, used_s = used_s, _processor_s(platform)
        num_idle = num_idle + 1 if used_s - before_s <= IDLE_SHARE * IDLE_WINDOW_S else 0


def _processor_s(platform: PlatformProcess) -> float:
    """Return the processor time of everything below the launcher, including ended children."""
    total_s = 0.0
    for process in platform.family():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            total_s += sum(process.cpu_times()[:4])
    return total_s


async def measure(*, is_short: bool = False) -> list[Row]:
    """With `is_short`, run only the platform and the single process, once each."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:NUM_CORES])
    trl_python = None if is_short else ensure()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        model = example_model(root / "calculator")
        learners = Learners(model, example_tasks(root / "tasks.jsonl"), trl_python)
        return await _measure(learners, num_repeats=1 if is_short else NUM_REPEATS)


async def _measure(learners: Learners, *, num_repeats: int) -> list[Row]:
    sides = {OURS: learners.ours, PROTOTYPE: learners.prototype}
    goals = {PROTOTYPE: Goal(1.5, Bound.AT_MOST, Quantity.RATIO)}
    if learners.trl_python is not None:
        first = {setting: (await learners.trl(setting))["time"] for setting in SETTINGS}
        best = min(first, key=first.__getitem__)
        sides[f"TRL, {best}"] = lambda: learners.trl(best)
        goals[f"TRL, {best}"] = Goal(1 / 3, Bound.AT_MOST, Quantity.RATIO)
    try:
        samples = await interleaved(sides, num_repeats=num_repeats, num_warm_ups=0)
    finally:
        CURVES.parent.mkdir(parents=True, exist_ok=True)
        CURVES.write_bytes(msgspec.json.encode(learners.curves))
    sys.stdout.write("\n" + curves_table(learners.curves, list(sides)) + "\n\n")

    def row(metric: str, baseline: str, shown: str, unit: str = "s", goal: Goal | None = None) -> Row:
        theirs = samples[baseline]["time" if metric == "time_from_up" else metric]
        return Row(shown, unit, samples[OURS][metric], baseline, theirs, goal)

    reached = f"time to a mean reward of {TARGET}"
    rows = [row("time", side, reached, goal=goal) for side, goal in goals.items()]
    for side in goals:
        rows += [
            row("time_from_up", side, f"{reached}, from `up`"),
            row("first", side, "time of the first update"),
            row("time_after_first", side, f"{reached}, from the first update"),
            row("updates", side, f"updates to a mean reward of {TARGET}", "updates"),
            row("update", side, "time of an update"),
            row("last", side, "reward of the last tenth", "mean"),
        ]
    return rows


def curves_table(curves: Mapping[str, Sequence[Curve]], names: Sequence[str]) -> str:
    """Return reward over wall time: the median over runs of the mean of the newest three updates,
    every `SHOWN_EVERY_S` seconds."""
    last_s = max(curve[-1].at_s for name in names for curve in curves[name])
    times = [SHOWN_EVERY_S * n for n in range(1, math.ceil(last_s / SHOWN_EVERY_S) + 1)]
    lines = [["reward at", *(f"{at:.0f} s" for at in times)], ["---"] * (len(times) + 1)]
    lines += [
        [name, *(_median_shown([reward_at(curve, at) for curve in curves[name]]) for at in times)]
        for name in names
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _median_shown(rewards: Sequence[float]) -> str:
    return "-" if any(map(math.isnan, rewards)) else f"{statistics.median(rewards):.2f}"


def reward_at(curve: Curve, at_s: float) -> float:
    """Return the mean of the newest `WINDOW` updates at that time, or NaN before the first."""
    newest = [point.reward for point in curve if point.at_s <= at_s][-WINDOW:]
    return statistics.fmean(newest) if newest else math.nan
