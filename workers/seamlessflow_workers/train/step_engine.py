"""The trainer's interface to the engine that computes: it takes a batch, makes its optimizer steps and returns weights.

`step.engine.TrainEngine` computes with DeepSpeed; anything that implements this protocol can replace it. This
module does not import torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from seamlessflow.core.batching.format import Batch
from seamlessflow_workers.process.input_faults import InputFault
from seamlessflow_workers.weights.manifest import ShardEntry
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import TensorLayout
from seamlessflow_workers.weights.transports.file.shards import ShardOrder


class ModelLoadError(RuntimeError):
    """The model cannot be loaded, or the job cannot be trained, on this machine."""


class ModelRefused(ModelLoadError, InputFault):
    """The folder has no causal language model that transformers can load and the job can train, on any machine."""


class RankGone(RuntimeError):
    """A process that trains together with this one has ended, so the state in memory is lost."""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Bytes of an accelerator's memory: how much was freed, how much the process keeps nevertheless, and the most that
    it had allocated so far. On a CPU all of them are 0, because nothing leaves its memory."""

    freed_bytes: int = 0
    kept_bytes: int = 0
    peak_bytes: int = 0


class StepEngine(Protocol):
    """Not thread-safe: the trainer calls it from one thread."""

    def step(self, batch: Batch, *, step_version: int, optimizer_step: int) -> dict[str, float]:
        """Train on a batch with `train.num_steps_per_update` optimizer steps, of which `optimizer_step` (from 1) is the
        number of the first; `step_version` is the version before it."""
        ...

    @property
    def adapter_config(self) -> bytes | None:
        """Return `adapter_config.json` if only an adapter is trained and published, else None."""
        ...

    def layouts(self) -> Mapping[str, TensorLayout]:
        """Return the layouts of the published tensors, in the job's number format.

        That is all weights, including an output head that is tied to the embeddings, or those of the adapter.
        """
        ...

    def shards_write(self, order: ShardOrder, sealed: SealedShards | None = None) -> dict[str, ShardEntry]:
        """Write all shards of a version, each rank its own; `sealed` keeps those of this process.

        Raises OSError, or WeightsNotFinite instead of writing values that no engine would take.
        """
        ...

    def state_save(self, folder: Path, tag: str) -> None:
        """Begin to write parameters, optimizer and random state, as they are now, to `folder/tag`.

        Call `state_saved` until it is true before the next one.
        """
        ...

    def state_saved(self, *, waits: bool) -> bool:
        """Return whether the begun checkpoint is durable; with `waits` only once it is. Raises OSError if it failed."""
        ...

    def state_load(self, folder: Path, tag: str) -> None: ...

    def offload(self) -> DeviceUse:
        """Leave the accelerator to others until `reload`. A second call changes nothing."""
        ...

    def reload(self) -> None:
        """Restore what `offload` moved, bit for bit. Call it before anything else."""
        ...
