"""Publication of 2 GB on a file system in memory against `cp`, and what decoding sees while 2 GB are staged.

The version is written by the trainer's own code from tensors of this process: copied out, checked, digested and written
in shards, once by one rank and once by two, which each write half. `cp` copies the files that result, in the same
folder. Sides alternate. Staging is measured on the paced engine, whose steps sleep; it stages the same files for real.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.rollout.engine.engine import EmbeddedEngine
from seamlessflow_workers.rollout.engine.runner import Sampled, StagedWeights, StepBatch
from seamlessflow_workers.rollout.serving.served_engine import EngineSettings
from seamlessflow_workers.rollout.weights import WeightUpdates
from tests.benchmarks.report import Bound, Goal, Measured, Quantity, Row
from tests.fakes.pace import Pace
from tests.fakes.paced_engine import PacedRunner
from tests.fixtures.trainer_harness import run_check

IN_MEMORY = "/dev/shm"
NUM_REPEATS = 5
STEP_S = 0.02
NUM_STEPS_BEFORE = 50
MAX_GAP_STEPS, MAX_GAP_MS = 3.0, 100.0
ENDLESS = json.dumps(
    {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 90_000, "ignore_eos": True}}
).encode()
CP = "cp -r of the same files"


async def measure() -> list[Row]:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        rows = _publication_rows(Path(folder))
        gaps = [await _staging_gap(Path(folder) / "kept") for _ in range(NUM_REPEATS)]
    return [*rows, *_gap_rows(gaps)]


def _publication_rows(folder: Path) -> list[Row]:
    module = "tests.benchmarks.scale_out.publication_ranks"
    rows = []
    for num_ranks in (1, 2):
        found = run_check([module, str(folder), str(NUM_REPEATS)], num_ranks=num_ranks)["rates"]
        rows.append(
            Row(
                f"publication by {num_ranks} rank{'s' if num_ranks > 1 else ''}",
                "GB/s",
                Measured(found["publish"]),
                CP,
                Measured(found["cp"]),
                Goal(0.5, Bound.AT_LEAST, Quantity.RATIO),
                "2 GB are copied from the trainer's tensors, checked, digested (sha256) and written to shards.",
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Times between the ends of two steps, in ms: the longest while 2 GB are staged and just before, and the median."""

    staging: float
    before: float
    median: float


def _gap_rows(gaps: Sequence[_Gaps]) -> list[Row]:
    name, meaning = "longest gap of decoding while 2 GB are staged", "The paced engine stages real files."
    staging = Measured([one.staging for one in gaps])
    median, before = Measured([one.median for one in gaps]), Measured([one.before for one in gaps])
    ratio, limit = Goal(MAX_GAP_STEPS, Bound.AT_MOST, Quantity.RATIO), Goal(MAX_GAP_MS, Bound.AT_MOST)
    return [
        Row(name, "ms", staging, "its median step", median, ratio, meaning),
        Row(f"{name}, in all", "ms", staging, "the longest gap just before", before, limit, meaning),
    ]


class _StagingRunner(PacedRunner):
    """The paced engine's model, which stages files as a real one does and notes when its steps end."""

    def __init__(self, version: Path) -> None:
        super().__init__(num_rows=4, max_model_len=100_000, vocab_size=300, pace=Pace(step_s=STEP_S))
        shapes = {
            name: tuple(entry["shape"])
            for name, entry in json.loads((version / "manifest.json").read_bytes())["tensors"].items()
        }
        self._updates = WeightUpdates(version.parent, shapes, tied_embedding=None, dtype=torch.bfloat16)
        self.ends_s: list[float] = []

    def step(self, batch: StepBatch) -> Sampled:
        sampled = super().step(batch)
        self.ends_s.append(time.monotonic())
        return sampled

    def stage_weights(self, path: Path) -> StagedWeights:
        self._updates.stage(path)
        return super().stage_weights(path)


async def _staging_gap(version: Path) -> _Gaps:
    runner = _StagingRunner(version)
    engine = EmbeddedEngine(runner, EngineSettings(model_name="paced", weight_version="0"))
    engine.start()
    try:
        engine.submit(engine.parse(ENDLESS))
        while len(runner.ends_s) < NUM_STEPS_BEFORE:  # noqa: ASYNC110 - the engine's thread has no event for it
            await asyncio.sleep(STEP_S)
        begun = len(runner.ends_s)
        await engine.stage_weights(version, WeightTransport.FILE)
        staged = len(runner.ends_s)
        while len(runner.ends_s) == staged:  # noqa: ASYNC110 - as above: the step that was running
            await asyncio.sleep(STEP_S)
    finally:
        await engine.stop()
    steps_ms = np.diff(runner.ends_s) * 1e3
    return _Gaps(
        staging=float(steps_ms[begun - 1 : staged].max()),
        before=float(steps_ms[1 : begun - 1].max()),
        median=float(np.median(steps_ms[: begun - 1])),
    )
