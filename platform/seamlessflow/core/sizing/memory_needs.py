"""What a role of a job needs of a device's memory, in named uses.

Takes the model's shape and the job's spec. `Need.least_bytes` adds up only what certainly lies on the device at once
(weights, optimizer states, the cache of one full sequence), so it may rule a machine out; `Need.usual_bytes` adds what
the work usually takes, for people who choose a machine.

Sources: a parameter trained with Adam has 16 bytes of states in float32 and 18 in bfloat16 with float32 gradients
(ZeRO, arXiv 1910.02054, section 3.1; 2 + 4 + 12 here); activations of a layer take 34 bytes per token and hidden
feature in half precision without attention scores (Korthikanti et al., arXiv 2205.05198, equation 2).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from seamlessflow.core.job_spec import Dtype, EngineKind, JobSpec
from seamlessflow.core.sizing.model_shape import ModelShape
from seamlessflow.core.types.devices import DeviceKind

BYTES_OF = {Dtype.FLOAT32: 4, Dtype.BFLOAT16: 2}
MOMENT_BYTES = 8  # both moments of Adam, float32
MASTER_BYTES = 4  # float32 weights beside those in bfloat16
GRADIENT_BYTES = 4
ACTIVATION_VALUES = 17  # of a layer, per token and hidden feature: 34 bytes in half precision
ENGINE_OVERHEAD = 0.1  # of the weights: buffers of kernels and graphs


class Certainty(StrEnum):
    """always: the bytes lie on the device. on_gpu: the same, but processors commit memory only where it is written.
    usual: an estimate."""

    ALWAYS = "always"
    ON_GPU = "on_gpu"
    USUAL = "usual"


class MemoryUse(msgspec.Struct, frozen=True):
    """`num_bytes` in all; if `is_sharded`, the devices that share the model share them too."""

    name: str
    num_bytes: int
    is_sharded: bool
    certainty: Certainty = Certainty.ALWAYS

    def bytes_each(self, num_devices: int) -> int:
        return -(-self.num_bytes // num_devices) if self.is_sharded else self.num_bytes


class Need(msgspec.Struct, frozen=True):
    """The memory that each of the devices of one model needs."""

    uses: tuple[MemoryUse, ...]

    def least_bytes(self, num_devices: int = 1, kind: DeviceKind = "cuda") -> int:
        return sum(use.bytes_each(num_devices) for use in self._certain(kind))

    def usual_bytes(self, num_devices: int = 1) -> int:
        return sum(use.bytes_each(num_devices) for use in self.uses)

    def words(self, num_devices: int = 1, kind: DeviceKind = "cuda") -> str:
        """Name the certain uses, the largest first: "61.0 GiB of weights, 1.2 GiB of gradients"."""
        sizes = [(use.bytes_each(num_devices), use.name) for use in self._certain(kind)]
        ordered = sorted(sizes, key=lambda one: -one[0])
        return ", ".join(f"{size_text(num_bytes)} of {name}" for num_bytes, name in ordered if num_bytes)

    def shown(self, num_devices: int) -> Mapping[str, Any]:
        """Return what one GPU needs, as the API shows it."""
        certain = self._certain("cuda")
        return {
            "num_devices": num_devices,
            "least_bytes": self.least_bytes(num_devices),
            "usual_bytes": self.usual_bytes(num_devices),
            "parts": [
                {"name": use.name, "num_bytes": use.bytes_each(num_devices), "is_certain": use in certain}
                for use in self.uses
            ],
        }

    def _certain(self, kind: DeviceKind) -> list[MemoryUse]:
        certain = {Certainty.ALWAYS, Certainty.ON_GPU} if kind == "cuda" else {Certainty.ALWAYS}
        return [use for use in self.uses if use.certainty in certain]


def engine_need(spec: JobSpec, shape: ModelShape) -> Need:
    """Return what one engine needs on the devices that it is spread over."""
    width = BYTES_OF[spec.model.dtype]
    weights = shape.num_parameters * width
    sequence = spec.model.max_model_len * shape.cached_values * width
    # The embedded engine has a slot of full length for each sequence; vLLM pages them, and works with one.
    is_slotted = spec.rollout.engine is EngineKind.EMBEDDED
    return Need(
        (
            MemoryUse("weights", weights, is_sharded=True),
            MemoryUse("cache for one sequence", sequence, is_sharded=True),
            MemoryUse(
                "cache for the other sequences",
                sequence * (spec.rollout.max_num_seqs - 1),
                is_sharded=True,
                certainty=Certainty.ON_GPU if is_slotted else Certainty.USUAL,
            ),
            MemoryUse(
                "buffers", round(weights * ENGINE_OVERHEAD), is_sharded=True, certainty=Certainty.USUAL
            ),
        )
    )


def trainer_need(spec: JobSpec, shape: ModelShape) -> Need:
    """Return what each training process needs, one of which has a device.

    What ZeRO does not shard is whole on each, except for experts that are spread over several of them.
    """
    train = spec.train
    num_frozen, num_trained = 0, shape.num_parameters
    if train.lora is not None:
        num_frozen = shape.num_parameters
        num_trained = shape.num_adapter_parameters(train.lora.rank, train.lora.target_modules)
    num_elsewhere = shape.num_routed_parameters - -(-shape.num_routed_parameters // train.parallel.expert)
    policy = _trained(spec, num_trained, num_frozen, num_elsewhere=num_elsewhere)
    # A critic trains all of its weights, whatever the policy does.
    critic = _trained(spec, shape.num_parameters, of="critic's ") if spec.algorithm.needs_critic else ()
    activations = MemoryUse(
        "activations", _activation_bytes(spec, shape), is_sharded=False, certainty=Certainty.USUAL
    )
    return Need((*policy, *critic, activations))


def _trained(
    spec: JobSpec, num_trained: int, num_frozen: int = 0, *, num_elsewhere: int = 0, of: str = ""
) -> tuple[MemoryUse, ...]:
    """Return what a model with an optimizer needs. `num_elsewhere`: parameters that each process leaves to others;
    `of` begins the names of the uses."""
    width, stage = BYTES_OF[spec.model.dtype], spec.train.zero_stage
    master = MASTER_BYTES if spec.model.dtype is Dtype.BFLOAT16 else 0
    num_weights = num_trained + num_frozen - (num_elsewhere if stage < 3 else 0)
    num_gradients = num_trained - (num_elsewhere if stage < 2 else 0)
    return (
        MemoryUse(f"{of}weights", num_weights * width, is_sharded=stage >= 3),
        MemoryUse(f"{of}optimizer states", num_trained * (MOMENT_BYTES + master), is_sharded=stage >= 1),
        MemoryUse(f"{of}gradients", num_gradients * GRADIENT_BYTES, is_sharded=stage >= 2),
    )


def size_text(num_bytes: float) -> str:
    """Return a size for people: in GiB, smaller ones in MiB."""
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes >= 2**30 else f"{max(num_bytes / 2**20, 0.1):.1f} MiB"


def _activation_bytes(spec: JobSpec, shape: ModelShape) -> int:
    """Return the activations of one micro-batch. With checkpointing, only the inputs of layers stay, and one layer at a
    time is computed again."""
    layer = spec.train.micro_batch_tokens * shape.hidden_size * BYTES_OF[spec.model.dtype]
    if spec.train.gradient_checkpointing:
        return layer * (shape.num_layers + ACTIVATION_VALUES)
    return layer * ACTIVATION_VALUES * shape.num_layers
