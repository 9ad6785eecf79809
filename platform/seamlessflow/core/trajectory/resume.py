"""One answer in progress, across engines: its tokens, its remaining budget, and which engines may continue it.

`AnswerProgress` takes pieces as packed bytes with the versions that sampled them. The next engine is asked to continue
from the prompt and all tokens so far. Invariants: budget, tokens and spans are those of one call, however often the
answer changes engines; the version never decreases within a turn, so `min_version` only rises.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES
from seamlessflow.core.trajectory.version_spans import Spans, spans_bounds, spans_concat, spans_truncate


class FinishReason(StrEnum):
    """Why an engine stopped, in the engines' words. After `abort` the answer continues on another engine."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that one engine added. `spans` count from the first token of the piece."""

    token_ids: bytes
    logprobs: bytes
    spans: Spans
    finish_reason: FinishReason | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids) // TOKEN_BYTES


@dataclass(slots=True)
class AnswerProgress:
    """States: growing (finish_reason is None) → finished. `add` and `cut` move it."""

    prompt_ids: bytes
    max_tokens: int
    token_ids: bytearray = field(default_factory=bytearray)
    logprobs: bytearray = field(default_factory=bytearray)
    spans: Spans = ()
    finish_reason: FinishReason | None = None
    num_handovers: int = 0
    handover_at: tuple[int, ...] = ()  # the number of tokens at each hand-over
    num_continuations: int = 0
    num_wasted_tokens: int = 0
    max_gap_s: float = 0.0

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids) // TOKEN_BYTES

    @property
    def num_remaining(self) -> int:
        return self.max_tokens - self.num_tokens

    def is_unfinished(self) -> bool:
        return self.finish_reason is None

    @property
    def min_version(self) -> int:
        """Return the version that an engine must have at least to continue the answer."""
        return spans_bounds(self.spans)[1] or 0

    @property
    def next_prompt(self) -> bytes:
        """Return the input of the next engine: the prompt and all tokens sampled so far."""
        return self.prompt_ids + bytes(self.token_ids)

    def add(self, piece: Piece) -> None:
        if self.finish_reason is not None:
            raise ValueError("the answer is finished; nothing may be added to it")
        if len(piece.token_ids) != len(piece.logprobs):
            raise ValueError(f"{piece.num_tokens} tokens came with {len(piece.logprobs) // 4} logprobs")
        self.spans = spans_concat(self.spans, num_first=self.num_tokens, second=piece.spans)
        self.token_ids += piece.token_ids
        self.logprobs += piece.logprobs
        if piece.finish_reason not in (None, FinishReason.ABORT):
            self.finish_reason = piece.finish_reason
        elif self.num_remaining <= 0:
            self.finish_reason = FinishReason.LENGTH

    def moved(self) -> None:
        """Record a hand-over: the engine gave up the answer, and another one continues it."""
        self.num_handovers += 1
        self.handover_at += (self.num_tokens,)
        if self.token_ids:
            self.num_continuations += 1

    def cut(self, num_tokens: int) -> None:
        """Finish the answer after its first `num_tokens` tokens, which complete a stop string; drop the others."""
        self.num_wasted_tokens += self.num_tokens - num_tokens
        del self.token_ids[num_tokens * TOKEN_BYTES :]
        del self.logprobs[num_tokens * TOKEN_BYTES :]
        self.spans = spans_truncate(self.spans, num_tokens)
        self.handover_at = tuple(at for at in self.handover_at if at <= num_tokens)
        self.finish_reason = FinishReason.STOP
