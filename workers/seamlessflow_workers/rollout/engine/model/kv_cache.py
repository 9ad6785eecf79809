"""The KV cache of all rows: keys `[layers, rows, kv_heads, positions, key_dim]`, and values as wide as `value_dim`.

One position beyond the model's length is a bin: padding writes there and nothing ever reads it. A forward pass first
calls `aim` (which rows, where to write, how far to read), then each layer calls `update`. Rows 0 … n-1 are read as
views; any other selection is gathered.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class CacheShape:
    num_layers: int
    num_rows: int
    num_kv_heads: int
    max_model_len: int
    key_dim: int
    value_dim: (
        int  # as wide as keys, except in latent attention (DeepSeek), which caches two different things
    )


class KVCache:
    def __init__(self, shape: CacheShape, *, dtype: torch.dtype, device: torch.device) -> None:
        self.shape = shape
        self._dtype, self._device = dtype, device
        self._data: tuple[Tensor, ...] = ()  # keys and values of all layers, or nothing
        self._layers: list[tuple[Tensor, ...]] = []  # views of them
        self._targets = torch.empty(0)
        self._rows: Tensor | None = None
        self._num_rows = 0
        self._num_positions = 0
        self.allocate()

    @property
    def bin_position(self) -> int:
        return self.shape.max_model_len

    @property
    def num_bytes(self) -> int:
        return sum(cache.nbytes for cache in self._data)

    def allocate(self) -> None:
        """Allocate zeros, because masked positions are multiplied by zero, which a NaN would survive."""
        s = self.shape
        size = (s.num_layers, s.num_rows, s.num_kv_heads, s.max_model_len + 1)
        self._data = tuple(
            torch.zeros((*size, width), dtype=self._dtype, device=self._device)
            for width in (s.key_dim, s.value_dim)
        )
        self._layers = list(zip(*self._data, strict=True))

    def release(self) -> None:
        self._data, self._layers = (), []
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def aim(self, *, rows: Tensor, write_positions: Tensor, num_positions: int, is_dense: bool) -> None:
        """Choose `rows` [batch] and `write_positions` [batch, time]; reads cover positions below `num_positions`."""
        s = self.shape
        heads = torch.arange(s.num_kv_heads, device=rows.device)
        flat = (rows[:, None, None] * s.num_kv_heads + heads) * (s.max_model_len + 1) + write_positions[
            :, :, None
        ]
        self._targets = flat.reshape(-1)  # order: batch, time, head
        self._rows = None if is_dense else rows
        self._num_rows = len(rows)
        self._num_positions = num_positions

    def update(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write [batch, time, kv_heads, dim]; return what to attend to, [batch, kv_heads, position, dim]."""
        s = self.shape
        stored_keys, stored_values = self._layers[layer]
        stored_keys.view(-1, s.key_dim).index_copy_(0, self._targets, keys.reshape(-1, s.key_dim))
        stored_values.view(-1, s.value_dim).index_copy_(0, self._targets, values.reshape(-1, s.value_dim))
        selected = slice(0, self._num_rows) if self._rows is None else self._rows
        end = self._num_positions
        return stored_keys[selected, :, :end], stored_values[selected, :, :end]

    def copy_prefix(self, *, source: int, target: int, num_tokens: int) -> None:
        for cache in self._allocated():
            cache[:, target, :, :num_tokens] = cache[:, source, :, :num_tokens]

    def swap_rows(self, first: int, second: int, *, num_tokens: int) -> None:
        for cache in self._allocated():
            saved = cache[:, first, :, :num_tokens].clone()
            cache[:, first, :, :num_tokens] = cache[:, second, :, :num_tokens]
            cache[:, second, :, :num_tokens] = saved

    def _allocated(self) -> tuple[Tensor, ...]:
        if not self._data:
            raise RuntimeError("the KV cache is released")
        return self._data
