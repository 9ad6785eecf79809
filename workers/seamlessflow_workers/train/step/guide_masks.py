"""Computes again the masks under which guided answers of a batch were sampled.

It takes a batch and the model folder's tokenizer, and returns for each token the mask that the engine applied. An
answer whose masks cannot be the same (another library, another tokenizer, tokens that do not fit the guide) is unknown
from its first guided token on, and unknown tokens are kept out of the loss. Invariant: the same batch, folder and
library give the same result on every rank.
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.batching.format import Batch
from seamlessflow.core.guidance.guide import InvalidGuideError
from seamlessflow.core.guidance.masks import GuidedBy, MatcherFailedError, TokenNotAllowedError
from seamlessflow.core.guidance.record import GuideRecord

if TYPE_CHECKING:
    from seamlessflow.core.guidance.matching import Vocabulary

logger = logging.getLogger(__name__)

FREE = -1  # in `rows`: the token was sampled without a mask
MAX_TABLE_BYTES = 1 << 30  # answers beyond it are unknown

_MAX_LOGGED = 5  # reasons per batch

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenMasks:
    """Masks of N tokens: `rows` [N] point into `table` [U, bytes], one bit per token of the vocabulary; FREE: none."""

    rows: Ints
    table: NDArray[np.uint8]

    def of(self, token_indices: Ints) -> "TokenMasks | None":
        """Return the masks of some of the tokens, with only their rows of the table; None if all are free."""
        rows = self.rows[token_indices]
        if (rows == FREE).all():
            return None
        used, numbers = np.unique(rows, return_inverse=True)
        num_free = int(used[0] == FREE)
        return TokenMasks(numbers - num_free, self.table[used[num_free:]])


@dataclass(frozen=True, slots=True)
class BatchMasks:
    """Masks of a batch's T tokens. Those that train nothing have none."""

    rows: Ints  # [T]
    table: NDArray[np.uint8]  # each distinct mask once
    is_unknown: NDArray[np.bool_]  # [T]

    def of(self, token_indices: Ints) -> TokenMasks | None:
        """Return the masks of some tokens; None if they were sampled freely."""
        return TokenMasks(self.rows, self.table).of(token_indices)


class MaskMaker:
    """Makes masks for one model. The tokenizer is read with the first guided batch."""

    def __init__(self, folder: Path, *, num_tokens: int) -> None:
        """`num_tokens` is the length of the model's logits."""
        self._folder = folder
        self._num_tokens = num_tokens
        self._vocabulary: Vocabulary | None = None

    def masks(self, batch: Batch) -> BatchMasks | None:
        """Return the masks of a batch; None if none of its answers is guided."""
        if not len(batch.guided_starts):
            return None
        making = _Making(np.full(len(batch.token_ids), FREE), np.zeros(len(batch.token_ids), dtype=np.bool_))
        problems: Counter[str] = Counter()
        for start, end, guide in _trained_answers(batch):
            problem = self._follow(making, guide, batch.token_ids[start:end], start)
            if problem:
                making.rows[start:end] = FREE
                making.is_unknown[start:end] = batch.loss_mask[start:end] != 0
                problems[problem] += 1
        for problem, count in problems.most_common(_MAX_LOGGED):
            logger.warning(
                "batch %d: %d guided answers train nothing: %s", batch.header.number, count, problem
            )
        return BatchMasks(making.rows, making.table(), making.is_unknown)

    def _follow(self, making: "_Making", guide: GuideRecord, token_ids: NDArray[np.int32], start: int) -> str:
        """Note the masks of one answer, whose first guided token is number `start`. Returns why that is impossible."""
        try:
            vocabulary = self._read_vocabulary()
            matcher = vocabulary.matcher(guide.guide)
            if matcher.guided_by != guide.guided_by:
                return (
                    f"{_named(guide.guided_by)} computed their masks, here it is {_named(matcher.guided_by)}"
                )
            for index, token in enumerate(token_ids.tolist(), start=start):
                making.rows[index] = making.row(matcher.mask().tobytes())
                matcher.consume(token)
        except (
            OSError,
            InvalidGuideError,
            MatcherFailedError,
            TokenNotAllowedError,
            _TableFullError,
        ) as error:
            return str(error)
        return ""

    def _read_vocabulary(self) -> "Vocabulary":
        from seamlessflow.core.guidance.matching import Vocabulary

        if self._vocabulary is None:
            tokenizer = (self._folder / "tokenizer.json").read_text()
            self._vocabulary = Vocabulary(tokenizer, num_tokens=self._num_tokens)
        return self._vocabulary


def without_unknown(batch: Batch, masks: BatchMasks) -> Batch:
    """Return the batch with the unknown tokens kept out of the loss."""
    if not masks.is_unknown.any():
        return batch
    is_kept = ~masks.is_unknown
    return dataclasses.replace(
        batch,
        loss_mask=batch.loss_mask * is_kept,
        advantages_positive=batch.advantages_positive * is_kept,
        advantages_negative=batch.advantages_negative * is_kept,
        loss_weights=batch.loss_weights * is_kept,
    )


def _named(guided_by: GuidedBy) -> str:
    return f"{guided_by.library} with tokenizer {guided_by.tokenizer[:12]}"


class _TableFullError(RuntimeError):
    """The masks of a batch exceed MAX_TABLE_BYTES."""


@dataclass(slots=True)
class _Making:
    rows: Ints
    is_unknown: NDArray[np.bool_]
    numbers: dict[bytes, int] = field(default_factory=dict)  # of the distinct masks
    num_bytes: int = 0

    def table(self) -> NDArray[np.uint8]:
        flat = np.frombuffer(b"".join(self.numbers), dtype=np.uint8)
        return flat.reshape(len(self.numbers), -1) if self.numbers else flat[:, None]

    def row(self, mask: bytes) -> int:
        if mask not in self.numbers:
            self.num_bytes += len(mask)
            if self.num_bytes > MAX_TABLE_BYTES:
                raise _TableFullError(f"the masks of a batch may have at most {MAX_TABLE_BYTES} bytes")
            self.numbers[mask] = len(self.numbers)
        return self.numbers[mask]


def _trained_answers(batch: Batch) -> Iterator[tuple[int, int, GuideRecord]]:
    """Yield the guided answers that train something, each up to its last trained token."""
    trained = np.flatnonzero(batch.loss_mask)
    ends = np.searchsorted(trained, batch.guided_ends)
    for number, start in enumerate(batch.guided_starts.tolist()):
        last = int(trained[ends[number] - 1]) if ends[number] else -1
        if last >= start:
            yield start, last + 1, batch.header.guides[batch.guided_guides[number]]
