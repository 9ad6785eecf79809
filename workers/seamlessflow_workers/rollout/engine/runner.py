"""The engine's interface to a model: one step over rows of a KV cache, and control of its weights and memory.

A row has the keys and values of one sequence, position by position. The caller chooses the rows, the tokens and
their positions, and how to sample; the runner computes and knows nothing of requests.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.guidance.masks import PackedMask


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Consecutive tokens of one row whose KV is to be computed; the last chunk of a prompt also samples a token."""

    row: int
    start: int
    tokens: NDArray[np.int32]
    is_sampled: bool


@dataclass(frozen=True, slots=True)
class Reshaping:
    """Penalties and biases of one entry, as vLLM means them: the first two count generated tokens, repetition all."""

    prompt: NDArray[np.int32]
    generated: NDArray[np.int32]
    frequency: float
    presence: float
    repetition: float
    bias: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """How to sample, one entry per sampled row: first the sampled chunks in order, then the decoding rows."""

    temperature: NDArray[np.float32]  # 0: greedy
    top_p: NDArray[np.float32]
    top_k: NDArray[np.int64]  # 0: all
    uniform: NDArray[np.float64]  # in [0, 1), the only randomness in a step
    forbidden: tuple[tuple[int, tuple[int, ...]], ...]  # (entry, token ids that must not be sampled)
    num_top: int  # likeliest tokens to report per entry
    allowed: tuple[tuple[int, PackedMask], ...] = ()  # (entry, the only tokens that may be sampled)
    reshaped: tuple[tuple[int, Reshaping], ...] = ()


@dataclass(frozen=True, slots=True)
class StepBatch:
    chunks: tuple[PrefillChunk, ...]
    decode_rows: NDArray[np.int64]
    decode_tokens: NDArray[np.int64]
    decode_positions: NDArray[np.int64]
    sampling: SamplingBatch
    weight_version: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """One entry per sampled row, in the order of `SamplingBatch`; logprobs are those of the sampled distribution."""

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    top_ids: NDArray[np.int64] | None = None  # [entries, num_top], likeliest first
    top_logprobs: NDArray[np.float32] | None = None


class StagedWeights(Protocol):
    """Weights that were read and fit the model, so applying them cannot fail because of them."""

    @property
    def num_bytes(self) -> int: ...

    def apply(self) -> None: ...


class ModelRunner(Protocol):
    vocab_size: int
    max_model_len: int
    num_rows: int
    eos_token_ids: frozenset[int]

    def step(self, batch: StepBatch) -> Sampled: ...

    def copy_prefix(self, *, source: int, target: int, num_tokens: int) -> None: ...

    def swap_rows(self, first: int, second: int, *, num_tokens: int) -> None: ...

    def stage_weights(self, path: Path) -> StagedWeights:
        """Read and check. Raises WeightsError. Called from another thread than `step`."""
        ...

    def allocate_cache(self) -> None: ...

    def release_cache(self) -> int:
        """Free the cache; return how many bytes of the device the process keeps. On a CPU they do not count: 0."""
        ...
