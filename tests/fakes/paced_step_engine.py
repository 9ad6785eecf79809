"""A trainer's engine that sleeps for as long as its model's pace says.

Its weights are one number, the step that made them, so a loaded checkpoint shows its step. Each step that was applied
adds a line to `steps.txt` in the model's folder, if there is such a file.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step.micro_batches import plan_batch
from seamlessflow_workers.train.step_engine import DeviceUse
from seamlessflow_workers.weights.manifest import ShardEntry
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import RawTensor, TensorLayout
from seamlessflow_workers.weights.transports.file.shards import ShardOrder, shards_write
from tests.fakes.pace import Pace

STEPS = "steps.txt"


def steps_read(model_path: Path) -> list[tuple[int, int]]:
    """Return the steps that were applied to the model of a folder, in order, and the processes that applied them."""
    lines = (model_path / STEPS).read_text().splitlines()
    return [(int(step), int(process)) for step, process in map(str.split, lines)]


class PacedStepEngine:
    adapter_config: bytes | None = None

    def __init__(self, spec: JobSpec, pace: Pace, model_path: Path, *, num_machines: int = 1) -> None:
        """A step takes as many times less time as machines train together."""
        self._spec = spec
        self._num_machines = num_machines
        self._steps = model_path / STEPS
        self._pace = pace
        self.optimizer_step = 0
        self._saved_at_s = 0.0

    def step(self, batch: Batch, *, step_version: int, optimizer_step: int) -> dict[str, float]:
        started_s = time.monotonic()
        plan = plan_batch(
            batch,
            step_version=step_version,
            algorithm=self._spec.algorithm,
            aggregation_constant=self._spec.aggregation_constant,
            micro_batch_tokens=self._spec.train.micro_batch_tokens,
            is_tree=self._spec.train.tree,
        )
        self.optimizer_step = optimizer_step
        duration_s = plan.num_trained_tokens * self._pace.train_token_s / self._num_machines
        time.sleep(max(duration_s - (time.monotonic() - started_s), 0.0))
        self.note()
        return {
            "reward/mean": batch.header.reward_mean,
            "train/num_trained_tokens": float(plan.num_trained_tokens),
            "train/num_stale_samples": float(plan.num_stale_samples),
            "train/staleness_mean": plan.staleness_mean or 0.0,
            "train/step_s": time.monotonic() - started_s,
        }

    def note(self) -> None:
        if self._steps.exists():
            with self._steps.open("a") as file:
                file.write(f"{self.optimizer_step} {os.getpid()}\n")

    def layouts(self) -> Mapping[str, TensorLayout]:
        return {"step": TensorLayout(dtype="F32", shape=(1,), num_bytes=4)}

    def shards_write(self, order: ShardOrder, sealed: SealedShards | None = None) -> dict[str, ShardEntry]:
        return shards_write(order, self.layouts(), lambda names, _is_own: self.tensors(names), sealed=sealed)

    def tensors(self, names: Sequence[str]) -> Mapping[str, RawTensor]:
        time.sleep(self._pace.publish_s)
        data = np.asarray([self.optimizer_step], dtype="<f4").tobytes()
        return {name: RawTensor(dtype="F32", shape=(1,), data=data, num_bytes=len(data)) for name in names}

    def state_save(self, folder: Path, tag: str) -> None:
        """The step is written now; `state_saved` says so only once the time has passed."""
        (folder / tag).write_text(str(self.optimizer_step))
        self._saved_at_s = time.monotonic() + self._pace.checkpoint_s

    def state_saved(self, *, waits: bool) -> bool:
        remaining_s = self._saved_at_s - time.monotonic()
        if waits:
            time.sleep(max(remaining_s, 0.0))
        return waits or remaining_s <= 0

    def state_load(self, folder: Path, tag: str) -> None:
        self.optimizer_step = int((folder / tag).read_text())

    def offload(self) -> DeviceUse:
        return DeviceUse()

    def reload(self) -> None:
        return
