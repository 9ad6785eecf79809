"""The bytes of a training batch: packed arrays of linearised samples, as one safetensors buffer.

Samples are concatenated; sample s spans `sample_starts[s]:sample_starts[s + 1]`. The same batch always gives the same
bytes (arrays are written in a fixed order), so a replay after a crash is exact.
"""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as _load
from safetensors.numpy import save as _save

FORMAT_VERSION = 1
PROMPT_VERSION = -1  # in `versions`: the token was not sampled


class BatchHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the whole batch."""

    format_version: int = FORMAT_VERSION
    job_id: str
    number: int  # 1, 2, 3, … without gaps
    policy_version: int  # version of the trainer when the batch was assembled
    temperature: float  # the sampler's; logits are divided by it
    num_groups: int
    reward_mean: float
    reward_std: float


@dataclass(frozen=True, slots=True)
class Batch:
    """T tokens in S samples."""

    header: BatchHeader
    sample_starts: NDArray[np.int32]  # [S + 1]
    token_ids: NDArray[np.int32]  # [T]
    loss_mask: NDArray[np.uint8]  # [T] 1: sampled and trained
    behaviour_logprobs: NDArray[np.float32]  # [T] exactly as served; 0 where not sampled
    advantages: NDArray[np.float32]  # [T] 0 where the mask is 0
    versions: NDArray[np.int32]  # [T] PROMPT_VERSION where not sampled
    rewards: NDArray[np.float32]  # [S]

    @property
    def num_samples(self) -> int:
        return len(self.sample_starts) - 1


_ARRAYS = (
    "sample_starts",
    "token_ids",
    "loss_mask",
    "behaviour_logprobs",
    "advantages",
    "versions",
    "rewards",
)


def batch_encode(batch: Batch) -> bytes:
    arrays = {name: np.ascontiguousarray(getattr(batch, name)) for name in _ARRAYS}
    header = np.frombuffer(msgspec.json.encode(batch.header), dtype=np.uint8)
    return _save({"header": header, **arrays})


def batch_decode(raw: bytes) -> Batch:
    """Invert `batch_encode`. Raises ValueError on an unknown format version."""
    arrays = _load(raw)
    header = msgspec.json.decode(arrays.pop("header").tobytes(), type=BatchHeader)
    if header.format_version != FORMAT_VERSION:
        raise ValueError(f"batch format_version {header.format_version} is not {FORMAT_VERSION}")
    return Batch(header=header, **arrays)
