"""Masks as arrays, and how a matcher fails: what engines and trainers handle without the library behind them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PackedMask = NDArray[np.uint8]  # one bit per token, least significant first


class TokenNotAllowedError(ValueError):
    """The guide does not allow this token here."""


class MatcherFailedError(RuntimeError):
    """A limit was reached while an answer grew; no further mask can be computed."""


@dataclass(frozen=True, slots=True)
class GuidedBy:
    """The software that computed the masks of an answer. With these, the guide and the tokens, any process computes the
    same masks."""

    library: str  # name and version
    tokenizer: str  # SHA-256 of the model's tokenizer.json, hex
    end_token_ids: tuple[int, ...]


def unpacked_mask(mask: PackedMask, *, num_tokens: int) -> NDArray[np.bool_]:
    """Return one boolean per token, [num_tokens]."""
    return np.unpackbits(mask, count=num_tokens, bitorder="little").view(np.bool_)
