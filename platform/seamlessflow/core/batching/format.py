"""The bytes of a training batch: packed arrays of trees of samples, as one safetensors buffer.

Samples are concatenated: sample s spans `sample_starts[s]:sample_starts[s + 1]` and continues from token
`sample_parents[s]` (`core.trajectory.tree_layout`). Three arrays have the weights of tokens
(`core.algorithms.tree_weights`). The same batch always gives the same bytes (arrays are written in a fixed order), so a
replay after a crash is exact.

Rewards are kept for every session, even if none of its tokens is trained, because baselines compare all sessions.

Guided answers are ranges of tokens: answer a spans `guided_starts[a]:guided_ends[a]` and was sampled under guide number
`guided_guides[a]` of the header.
"""

from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as _load
from safetensors.numpy import save as _save

from seamlessflow.core.guidance.record import GuideRecord
from seamlessflow.core.trajectory.tree_layout import TreeLayout

FORMAT_VERSION = 4


class BatchHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the whole batch."""

    format_version: int = FORMAT_VERSION
    job_id: str
    number: int  # 1, 2, 3, … without gaps
    policy_version: int  # version of the trainer when the batch was assembled
    temperature: float  # of the sampler; logits are divided by it
    num_groups: int
    reward_mean: float
    reward_std: float
    metrics: dict[str, float] = {}  # of its groups, under the names of the metric catalogue
    guides: list[GuideRecord] = []  # each once


def _no_answers() -> NDArray[np.int32]:
    return np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Batch:
    """T tokens in S samples of M sessions; a session without trained tokens has no sample. A answers are guided."""

    header: BatchHeader
    sample_starts: NDArray[np.int32]  # [S + 1]
    sample_parents: NDArray[np.int32]  # [S] token that the sample continues from; NO_PARENT: it begins a tree
    token_ids: NDArray[np.int32]  # [T]
    loss_mask: NDArray[np.uint8]  # [T] 1: sampled and trained
    behaviour_logprobs: NDArray[np.float32]  # [T] exactly as served; 0 where not sampled
    advantages_positive: NDArray[np.float32]  # [T] A⁺ ≥ 0; 0 where the mask is 0
    advantages_negative: NDArray[np.float32]  # [T] A⁻ ≤ 0; 0 where the mask is 0
    loss_weights: NDArray[np.float32]  # [T] w > 0 where the mask is 1, else 0; their sum is the denominator
    versions: NDArray[np.int32]  # [T] PROMPT_VERSION where not sampled
    rewards: NDArray[np.float32]  # [S] reward of its session
    sessions: NDArray[np.int32]  # [S] number of the session within the batch, from 0 to M - 1
    groups: NDArray[np.int32]  # [S] number of its group within the batch
    session_rewards: NDArray[np.float64]  # [M] of all sessions with an outcome, after the overlong rule
    session_groups: NDArray[np.int32]  # [M]
    guided_starts: NDArray[np.int32] = field(default_factory=_no_answers)  # [A] first guided token, rising
    guided_ends: NDArray[np.int32] = field(default_factory=_no_answers)  # [A]
    guided_guides: NDArray[np.int32] = field(default_factory=_no_answers)  # [A] index in `header.guides`

    @property
    def num_samples(self) -> int:
        return len(self.sample_starts) - 1

    @property
    def layout(self) -> TreeLayout:
        """Return the samples as trees. Raises InvalidTreeLayout."""
        return TreeLayout(self.sample_starts.astype(np.int64), self.sample_parents.astype(np.int64))


_ARRAYS = (
    "sample_starts",
    "sample_parents",
    "token_ids",
    "loss_mask",
    "behaviour_logprobs",
    "advantages_positive",
    "advantages_negative",
    "loss_weights",
    "versions",
    "rewards",
    "sessions",
    "groups",
    "session_rewards",
    "session_groups",
    "guided_starts",
    "guided_ends",
    "guided_guides",
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
        raise ValueError(f"batch format_version {header.format_version}, expected {FORMAT_VERSION}")
    return Batch(header=header, **arrays)
