"""A `ModelRunner` over a torch decoder: takes batches of rows and returns sampled tokens.

A step samples once after at most two forward passes: a padded rectangle of prompt chunks, and one token for each
decoding row. Decoding computes rows 0 … highest as views of the cache; rows in between that do not decode write to the
bin position, and their result is dropped.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from seamlessflow.core.sizing.gpu_memory import CONTEXT_BYTES
from seamlessflow_workers.rollout.engine.model.kv_cache import CacheShape, KVCache
from seamlessflow_workers.rollout.engine.model.sampling import sample
from seamlessflow_workers.rollout.engine.runner import PrefillChunk, Sampled, StepBatch
from seamlessflow_workers.rollout.weights import StagedUpdate, WeightUpdates


class Decoder(Protocol):
    num_layers: int
    num_kv_heads: int
    key_dim: int  # of one head in the cache
    value_dim: int
    vocab_size: int
    dtype: torch.dtype
    device: torch.device
    tied_embedding: str | None  # name of the embedding, if it is also the head

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """Views of everything computed with, by the names of the model folder."""
        ...

    def refresh(self) -> None:
        """Recompute whatever is derived from the parameters, which were overwritten."""
        ...

    def forward(
        self, *, tokens: Tensor, positions: Tensor, mask: Tensor, last: Tensor, cache: KVCache
    ) -> Tensor:
        """Return logits [batch, vocabulary] at index `last` [batch] of each row.

        `tokens` and `positions` are [batch, time], the additive `mask` is [batch, 1, time, cached].
        """
        ...


class _StagedDecoderWeights:
    def __init__(self, decoder: Decoder, updates: WeightUpdates, update: StagedUpdate) -> None:
        self._decoder, self._updates, self._update = decoder, updates, update

    @property
    def num_bytes(self) -> int:
        return self._update.num_bytes

    @torch.no_grad()
    def apply(self) -> None:
        parameters = self._decoder.parameters
        for name, value in self._update.values.items():
            parameters[name].copy_(value)
        self._updates.applied(self._update)
        self._decoder.refresh()


class TorchRunner:
    def __init__(
        self,
        decoder: Decoder,
        *,
        folder: Path,
        num_rows: int,
        max_model_len: int,
        eos_token_ids: frozenset[int],
    ) -> None:
        """`folder` has the model's own weights, to which adapters are added."""
        self._decoder = decoder
        self._updates = WeightUpdates(
            folder,
            {name: tuple(parameter.shape) for name, parameter in decoder.parameters.items()},
            tied_embedding=decoder.tied_embedding,
            dtype=decoder.dtype,
        )
        self.vocab_size = decoder.vocab_size
        self.max_model_len = max_model_len
        self.num_rows = num_rows
        self.eos_token_ids = eos_token_ids
        shape = CacheShape(
            num_layers=decoder.num_layers,
            num_rows=num_rows,
            num_kv_heads=decoder.num_kv_heads,
            max_model_len=max_model_len,
            key_dim=decoder.key_dim,
            value_dim=decoder.value_dim,
        )
        self.cache = KVCache(shape, dtype=decoder.dtype, device=decoder.device)
        self._key_positions = torch.arange(max_model_len, device=decoder.device)
        self._zero = torch.zeros((), dtype=decoder.dtype, device=decoder.device)
        self._closed = torch.full((), -torch.inf, dtype=decoder.dtype, device=decoder.device)

    @torch.inference_mode()
    def step(self, batch: StepBatch) -> Sampled:
        chunks_logits = []
        if batch.chunks:
            is_sampled = [index for index, chunk in enumerate(batch.chunks) if chunk.is_sampled]
            logits = self._prefill(batch.chunks)
            chunks_logits.append(logits if len(is_sampled) == len(batch.chunks) else logits[is_sampled])
        if len(batch.decode_rows):
            chunks_logits.append(self._decode(batch))
        return sample(
            chunks_logits[0] if len(chunks_logits) == 1 else torch.cat(chunks_logits), batch.sampling
        )

    def _prefill(self, chunks: tuple[PrefillChunk, ...]) -> Tensor:
        lengths = np.array([len(chunk.tokens) for chunk in chunks])
        size = (len(chunks), int(lengths.max()))
        tokens, positions = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        targets = np.full(size, self.cache.bin_position, dtype=np.int64)
        for index, chunk in enumerate(chunks):
            length = len(chunk.tokens)
            tokens[index, :length] = chunk.tokens
            positions[index, :length] = targets[index, :length] = np.arange(chunk.start, chunk.start + length)
        rows = np.array([chunk.row for chunk in chunks], dtype=np.int64)
        return self._forward(
            tokens=tokens, positions=positions, targets=targets, rows=rows, last=lengths - 1, is_dense=False
        )

    def _decode(self, batch: StepBatch) -> Tensor:
        rows = batch.decode_rows
        size = int(rows[-1]) + 1
        if size == len(rows):
            tokens, positions = batch.decode_tokens, batch.decode_positions
            targets = positions
        else:
            tokens, positions = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
            targets = np.full(size, self.cache.bin_position, dtype=np.int64)
            tokens[rows], positions[rows], targets[rows] = (
                batch.decode_tokens,
                batch.decode_positions,
                batch.decode_positions,
            )
        logits = self._forward(
            tokens=tokens[:, None],
            positions=positions[:, None],
            targets=targets[:, None],
            rows=np.arange(size),
            last=np.zeros(size, dtype=np.int64),
            is_dense=True,
        )
        return logits if size == len(rows) else logits[self._tensor(rows)]

    def _forward(
        self,
        *,
        tokens: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
        positions: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
        targets: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
        rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
        last: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
        is_dense: bool,
    ) -> Tensor:
        num_positions = int(positions.max()) + 1
        query_positions = self._tensor(positions)
        self.cache.aim(
            rows=self._tensor(rows),
            write_positions=self._tensor(targets),
            num_positions=num_positions,
            is_dense=is_dense,
        )
        is_open = self._key_positions[:num_positions] <= query_positions[:, None, :, None]
        return self._decoder.forward(
            tokens=self._tensor(tokens),
            positions=query_positions,
            mask=torch.where(is_open, self._zero, self._closed),
            last=self._tensor(last),
            cache=self.cache,
        )

    def _tensor(self, array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Tensor:
        return torch.from_numpy(array).to(self._decoder.device)

    @torch.inference_mode()
    def copy_prefix(self, *, source: int, target: int, num_tokens: int) -> None:
        self.cache.copy_prefix(source=source, target=target, num_tokens=num_tokens)

    @torch.inference_mode()
    def swap_rows(self, first: int, second: int, *, num_tokens: int) -> None:
        self.cache.swap_rows(first, second, num_tokens=num_tokens)

    def stage_weights(self, path: Path) -> _StagedDecoderWeights:
        return _StagedDecoderWeights(self._decoder, self._updates, self._updates.stage(path))

    def allocate_cache(self) -> None:
        self.cache.allocate()

    def release_cache(self) -> int:
        self.cache.release()
        if self._decoder.device.type != "cuda":
            return 0
        return torch.cuda.memory_reserved(self._decoder.device) + CONTEXT_BYTES
