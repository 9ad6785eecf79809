"""The training options that decide how much memory a process needs, and which of them do not go together.

It takes sections of a job spec and returns the format in which gradients add up, or the sentences that refuse a spec.
"""

from collections.abc import Iterator
from typing import Protocol

from seamlessflow.core.spec_section import SpecSection
from seamlessflow.core.types.dtypes import Dtype


class OffloadSection(SpecSection):
    """What a training process keeps in the host's memory instead of the GPU's. Without a GPU, nothing moves."""

    activations: bool = False
    """Keep on the host what `gradient_checkpointing` saves for the backward pass: the input of each layer, for each
    token. Steps become somewhat slower."""
    optimizer: bool = False
    """Keep AdamW's state on the host and compute the update there: its moments, the weights in float32 and, from
    `zero_stage` 2, the gradients. It needs `zero_stage` 1 or more, and makes the update slower."""


class ParallelOptions(Protocol):
    @property
    def expert(self) -> int: ...


class MemoryOptions(Protocol):
    """`core.job_spec.TrainSection`, as far as it matters here."""

    zero_stage: int
    gradient_checkpointing: bool
    gradient_dtype: Dtype | None
    offload: OffloadSection

    @property
    def parallel(self) -> ParallelOptions: ...


def gradient_dtype(train: MemoryOptions, model_dtype: Dtype) -> Dtype:
    """Return the number format in which the gradients of a step add up."""
    if train.gradient_dtype is not None:
        return train.gradient_dtype
    return Dtype.FLOAT32 if train.zero_stage and train.parallel.expert == 1 else model_dtype


def memory_problems(train: MemoryOptions, model_dtype: Dtype) -> Iterator[str]:
    """Yield a sentence for each combination that cannot be trained."""
    if train.offload.optimizer and train.zero_stage == 0:
        yield (
            "train.offload.optimizer: ZeRO stage 0 keeps the optimizer whole on the GPU; accepted: train.zero_stage "
            "1, 2 or 3, or offload.optimizer false"
        )
    if train.offload.optimizer and train.parallel.expert > 1:
        yield (
            "train.offload.optimizer: the optimizer of spread experts (train.parallel.expert) stays on the GPU; "
            "accepted: train.parallel.expert 1, or offload.optimizer false"
        )
    if train.offload.activations and not train.gradient_checkpointing:
        yield (
            "train.offload.activations: it moves what train.gradient_checkpointing saves, which is off; accepted: "
            "gradient_checkpointing true, or offload.activations false"
        )
    if train.gradient_dtype is Dtype.BFLOAT16 and model_dtype is Dtype.FLOAT32:
        yield (
            "train.gradient_dtype: 'bfloat16' would round the gradients of a model in float32 (model.dtype); "
            "accepted: 'float32'"
        )
    if train.gradient_dtype is Dtype.FLOAT32 and model_dtype is Dtype.BFLOAT16 and train.zero_stage == 0:
        yield (
            "train.gradient_dtype: ZeRO stage 0 adds gradients up in the number format of the model, 'bfloat16'; "
            "accepted: train.zero_stage 1, 2 or 3, or gradient_dtype 'bfloat16'"
        )
    if train.gradient_dtype is Dtype.FLOAT32 and model_dtype is Dtype.BFLOAT16 and train.parallel.expert > 1:
        yield (
            "train.gradient_dtype: gradients of spread experts (train.parallel.expert) add up in the number format of "
            "the model, 'bfloat16'; accepted: train.parallel.expert 1, or gradient_dtype 'bfloat16'"
        )
