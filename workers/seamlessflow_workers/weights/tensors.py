"""Weights without a framework: their layouts, their bytes, and the source from which a publication takes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """A tensor without its values."""

    dtype: str  # F32, BF16, …
    shape: tuple[int, ...]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor without a framework: contiguous little-endian bytes."""

    dtype: str  # F32, BF16, …
    shape: tuple[int, ...]
    data: bytes | memoryview
    num_bytes: int


class WeightsNotFinite(ValueError):
    """A tensor has NaN or infinite values."""


class WeightsSource(Protocol):
    """The source of the weights to publish; they do not change meanwhile."""

    def layouts(self) -> Mapping[str, TensorLayout]:
        """Return the layout of every published tensor, by name."""
        ...

    def tensors(self, names: Sequence[str]) -> Mapping[str, RawTensor]:
        """Return these tensors with their values."""
        ...
