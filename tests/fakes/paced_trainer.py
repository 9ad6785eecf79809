"""The real trainer around an engine that sleeps: leases, staleness, checkpoints and publication are
real.

Run from the repository's root as `python -m tests.fakes.paced_trainer`, with the trainer's flags.
Its weights are one number, the step that made them, so a loaded checkpoint shows its step.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.main import main
from seamlessflow_workers.train.step.micro_batches import plan_batch
from seamlessflow_workers.weights.tensors import RawTensor, TensorLayout
from tests.fakes.pace import Pace, pace_read


class PacedStepEngine:
    adapter_config: bytes | None = None

    def __init__(self, spec: JobSpec, pace: Pace) -> None:
        self._spec = spec
        self._pace = pace
        self.optimizer_step = 0

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
        duration_s = plan.num_trained_tokens * self._pace.train_token_s
        time.sleep(max(duration_s - (time.monotonic() - started_s), 0.0))
        return {
            "reward/mean": batch.header.reward_mean,
            "train/num_trained_tokens": float(plan.num_trained_tokens),
            "train/num_stale_samples": float(plan.num_stale_samples),
            "train/staleness_mean": plan.staleness_mean or 0.0,
            "train/step_s": time.monotonic() - started_s,
        }

    def layouts(self) -> Mapping[str, TensorLayout]:
        return {"step": TensorLayout(dtype="F32", shape=(1,), num_bytes=4)}

    def tensors(self, names: Sequence[str]) -> Mapping[str, RawTensor]:
        time.sleep(self._pace.publish_s)
        data = np.asarray([self.optimizer_step], dtype="<f4").tobytes()
        return {name: RawTensor(dtype="F32", shape=(1,), data=data, num_bytes=len(data)) for name in names}

    def state_save(self, folder: Path, tag: str) -> None:
        (folder / tag).write_text(str(self.optimizer_step))

    def state_load(self, folder: Path, tag: str) -> None:
        self.optimizer_step = int((folder / tag).read_text())

    def offload(self) -> int:
        return 0

    def reload(self) -> None:
        return


def engine_load(model_path: Path, spec: JobSpec) -> PacedStepEngine:
    pace = pace_read(model_path)
    time.sleep(pace.start_s)
    return PacedStepEngine(spec, pace)


if __name__ == "__main__":
    main(engine_load)
