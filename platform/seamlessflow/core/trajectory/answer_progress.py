"""One answer in progress, across engines: its tokens, its remaining budget, and which engines may continue it.

`AnswerProgress` takes chunks as packed bytes with the versions that sampled them. The next engine is asked to continue
from the prompt and all tokens so far. Invariants: budget, tokens and spans are those of one call, however often the
answer changes engines; the version never decreases within a turn, so `min_version` only rises.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from seamlessflow.core.guidance.masks import GuidedBy
from seamlessflow.core.guidance.record import GuideRecord, guide_record
from seamlessflow.core.trajectory.asked_sampling import AskedSampling
from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES
from seamlessflow.core.trajectory.version_spans import Spans, spans_bounds, spans_concat, spans_truncate


class FinishReason(StrEnum):
    """Why an engine stopped, in the engines' words. After `abort` the answer continues on another engine."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """Tokens that one engine added. `spans` count from the first token of the chunk.

    `top_ids` and `top_logprobs` have the likeliest tokens at each position, if they were asked for.
    """

    token_ids: bytes
    logprobs: bytes
    spans: Spans
    finish_reason: FinishReason | None = None
    guided_by: GuidedBy | None = None  # who computed the masks, as the engine says
    top_ids: bytes = b""
    top_logprobs: bytes = b""

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
    asked: AskedSampling = field(default_factory=AskedSampling)
    guided_by: GuidedBy | None = None  # who computed the masks of all tokens
    has_unknown_masks: bool = False  # several engines differed, or one did not say
    top_ids: bytearray = field(
        default_factory=bytearray
    )  # [tokens, asked.num_top] int32, -1 beyond the possible ones
    top_logprobs: bytearray = field(default_factory=bytearray)

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
    def guided(self) -> GuideRecord | None:
        """Return the guide of the answer as it is recorded; None without one, or if its masks are unknown."""
        if self.asked.guide is None or self.guided_by is None or self.has_unknown_masks:
            return None
        return guide_record(self.asked.guide.kind, self.asked.guide.text, self.guided_by)

    @property
    def untrained_because(self) -> list[str]:
        """Return what keeps the answer from being trained: parameters that no trainer computes, unknown masks."""
        is_unknown = self.asked.guide is not None and self.num_tokens > 0 and self.guided is None
        return [*self.asked.reshaping, *(["guide"] if is_unknown else [])]

    @property
    def next_prompt(self) -> bytes:
        """Return the input of the next engine: the prompt and all tokens sampled so far."""
        return self.prompt_ids + bytes(self.token_ids)

    def add(self, chunk: TokenChunk) -> None:
        if self.finish_reason is not None:
            raise ValueError("the answer is finished; nothing may be added to it")
        if len(chunk.token_ids) != len(chunk.logprobs):
            raise ValueError(f"{chunk.num_tokens} tokens came with {len(chunk.logprobs) // 4} logprobs")
        if chunk.num_tokens and self.asked.guide is not None:
            self.guided_by = self.guided_by if self.num_tokens else chunk.guided_by
            self.has_unknown_masks |= chunk.guided_by is None or chunk.guided_by != self.guided_by
        self.spans = spans_concat(self.spans, num_first=self.num_tokens, second=chunk.spans)
        self.token_ids += chunk.token_ids
        self.logprobs += chunk.logprobs
        self.top_ids += chunk.top_ids
        self.top_logprobs += chunk.top_logprobs
        if chunk.finish_reason not in (None, FinishReason.ABORT):
            self.finish_reason = chunk.finish_reason
        elif self.num_remaining <= 0:
            self.finish_reason = FinishReason.LENGTH

    def moved(self) -> int:
        """Record a hand-over: the engine gave up the answer, and another one continues it.

        Returns how many tokens the next engine reads again: those that this one has had in its cache, which are none
        if it added none.
        """
        num_before = self.handover_at[-1] if self.handover_at else 0
        num_read_again = len(self.next_prompt) // TOKEN_BYTES if self.num_tokens > num_before else 0
        self.num_handovers += 1
        self.handover_at += (self.num_tokens,)
        if self.token_ids:
            self.num_continuations += 1
        return num_read_again

    def cut(self, num_tokens: int) -> None:
        """Finish the answer after its first `num_tokens` tokens, which complete a stop string; drop the others."""
        self.num_wasted_tokens += self.num_tokens - num_tokens
        del self.token_ids[num_tokens * TOKEN_BYTES :]
        del self.logprobs[num_tokens * TOKEN_BYTES :]
        del self.top_ids[num_tokens * TOKEN_BYTES * self.asked.num_top :]
        del self.top_logprobs[num_tokens * TOKEN_BYTES * self.asked.num_top :]
        self.spans = spans_truncate(self.spans, num_tokens)
        self.handover_at = tuple(at for at in self.handover_at if at <= num_tokens)
        self.finish_reason = FinishReason.STOP
