"""What the engine asks of a model: one step over rows of a KV cache, and control of its weights and memory.

A row holds the KV of one sequence, position by position. The caller decides which rows, which tokens at which
positions and how to sample; the runner computes. It knows nothing of requests.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seamlessflow_workers.weights.offers import Arrival


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Consecutive tokens of one row whose KV is wanted; the last chunk of a prompt also yields a sampled token."""

    row: int
    start: int
    tokens: NDArray[np.int32]
    is_sampled: bool


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """How to sample, one entry per sampled row: first the sampled prefill chunks in order, then the decoding rows."""

    temperature: NDArray[np.float32]  # 0: greedy
    top_p: NDArray[np.float32]
    top_k: NDArray[np.int64]  # 0: all
    uniform: NDArray[np.float64]  # in [0, 1), the only chance in a step
    forbidden: tuple[tuple[int, tuple[int, ...]], ...]  # (entry, token ids that must not be sampled)
    num_top: int  # likeliest tokens to report per entry


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
    """One entry per sampled row, in the order of `SamplingBatch`. Logprobs are of the distribution sampled from."""

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    top_ids: NDArray[np.int64] | None = None  # [entries, num_top], likeliest first
    top_logprobs: NDArray[np.float32] | None = None


class StagedWeights(Protocol):
    """Weights that were read and proven to fit; applying them cannot fail for their own sake."""

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
        """Read and check; raises `WeightsError`. Called from another thread than `step`."""
        ...

    def stage_from_card(self, path: Path) -> tuple[Arrival, StagedWeights | None]:
        """As `stage_weights`, from memory that the trainer shares; nothing staged where the arrival says why not."""
        ...

    def allocate_cache(self) -> None: ...

    def release_cache(self) -> None: ...
