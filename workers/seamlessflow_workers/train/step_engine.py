"""What the trainer asks of the thing that computes: one batch in, one optimizer step, weights out.

`step.engine.TrainEngine` computes with DeepSpeed; whatever else keeps to this protocol can take its place.
Free of torch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from seamlessflow.core.batching.format import Batch
from seamlessflow_workers.weights.tensors import RawTensor, TensorLayout


class ModelLoadError(RuntimeError):
    """The folder holds no causal language model that transformers can load, or none that the job can train."""


class RankGone(RuntimeError):
    """A process that trains together with this one has ended: what they had in memory is lost."""


class StepEngine(Protocol):
    """Not thread-safe: the trainer calls it from one thread."""

    def step(self, batch: Batch, *, step_version: int, optimizer_step: int) -> dict[str, float]:
        """Train on a batch as step number `optimizer_step` (from 1), with weights of `step_version` before it."""
        ...

    @property
    def adapter_config(self) -> bytes | None:
        """Return `adapter_config.json` where only an adapter is trained and published."""
        ...

    def layouts(self) -> Mapping[str, TensorLayout]:
        """What is published, in the job's number format: all weights, the output head also where it is tied to the
        embeddings; or those of the adapter."""
        ...

    def tensors(self, names: Sequence[str]) -> Mapping[str, RawTensor]:
        """Some of them, gathered from wherever their parts are."""
        ...

    def state_save(self, folder: Path, tag: str) -> None:
        """Write parameters, optimizer and random state below `folder/tag`."""
        ...

    def state_load(self, folder: Path, tag: str) -> None: ...

    def offload(self) -> int:
        """Leave the accelerator to others until `reload` and return the bytes freed. A second call changes nothing."""
        ...

    def reload(self) -> None:
        """Take up again what `offload` put away, bit for bit; needed before anything else is asked."""
        ...
