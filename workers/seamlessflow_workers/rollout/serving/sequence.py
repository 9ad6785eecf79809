"""One request's life in an engine: its tokens, their logprobs and the weight versions that sampled them.

States: waiting (no row) → running (a row) → finished (`finish_reason` set). Only the engine's thread moves a sequence
and appends to it; other threads may read. Readers take `finish_reason` first and `num_tokens` second: what lies below
`num_tokens` never changes, and nothing is appended after the end.
"""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.guidance.masks import MatcherFailedError, PackedMask, TokenNotAllowedError
from seamlessflow_workers.rollout.serving.request import GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from seamlessflow.core.guidance.matching import (
        Matcher,
    )  # its library costs every start of an engine 35 ms


class SequenceFinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class ServedSequence:
    __slots__ = (
        "allowed",
        "cache_salt",
        "changed",
        "failure",
        "finish_reason",
        "is_reported",
        "is_streaming",
        "logprobs",
        "matcher",
        "max_total_tokens",
        "num_answered",
        "num_cached_tokens",
        "num_computed",
        "num_notified",
        "num_prompt_tokens",
        "num_tokens",
        "params",
        "request_id",
        "row",
        "seed",
        "stop_ids",
        "stop_reason",
        "tokens",
        "top_logprobs",
        "version_starts",
    )

    def __init__(
        self,
        *,
        request_id: str,
        body: GenerateRequest,
        eos_token_ids: frozenset[int],
        max_model_len: int,
        seed: int = 0,
        matcher: "Matcher | None" = None,
    ) -> None:
        prompt = np.array(body.token_ids, dtype=np.int32)
        self.request_id = request_id
        self.params: SamplingParams = body.sampling_params
        self.cache_salt = body.cache_salt or ""
        self.is_streaming = bool(body.stream)
        self.num_prompt_tokens = len(prompt)
        budget = max_model_len - len(prompt)
        budget = budget if self.params.max_tokens is None else min(budget, self.params.max_tokens)
        self.max_total_tokens = len(prompt) + budget
        self.tokens: NDArray[np.int32] = np.empty(self.max_total_tokens, dtype=np.int32)
        self.tokens[: len(prompt)] = prompt
        self.num_tokens = len(prompt)
        self.logprobs: NDArray[np.float32] = np.empty(budget, dtype=np.float32)
        self.top_logprobs: list[tuple[list[int], list[float]]] = []
        self.version_starts: list[tuple[str, int]] = []
        self.seed = seed
        requested = frozenset(self.params.stop_token_ids or ())
        self.stop_ids = requested if self.params.ignore_eos else requested | eos_token_ids
        self.finish_reason: SequenceFinishReason | None = None
        self.stop_reason: int | None = None
        self.failure: str | None = None  # why this request alone ended with an error
        self.matcher = matcher  # of a guided answer
        self.num_answered = body.guided_prefix  # prompt tokens that belong to the answer
        self.allowed: PackedMask | None = None if matcher is None else matcher.mask()  # of the next token
        self.is_reported = False  # its end was counted and announced
        self.row = -1  # of the KV cache; -1: waiting or finished
        self.num_computed = 0  # leading tokens whose KV lies in the row
        self.num_cached_tokens: int | None = None  # prompt tokens found in the cache when first admitted
        self.num_notified = 0
        self.changed = asyncio.Event()  # set in the event loop when there is something new to read

    @property
    def num_generated(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    def append(self, *, token: int, logprob: float, version: str) -> None:
        """Append a sampled token; finish the sequence if the token stops it or uses up its budget."""
        index = self.num_tokens - self.num_prompt_tokens
        self.tokens[self.num_tokens] = token
        self.logprobs[index] = logprob
        if not self.version_starts or self.version_starts[-1][0] != version:
            self.version_starts.append((version, index))
        self.num_tokens += 1
        if token in self.stop_ids and self.num_generated >= self.params.min_tokens:
            self.stop_reason = token if token in (self.params.stop_token_ids or ()) else None
            self.finish_reason = SequenceFinishReason.STOP
        elif self.num_tokens >= self.max_total_tokens:
            self.finish_reason = SequenceFinishReason.LENGTH

    def advance_guide(self) -> None:
        """Let the guide take the token that was appended last; end the sequence if the guide cannot go on."""
        if self.matcher is None:
            return
        try:
            self.matcher.consume(int(self.tokens[self.num_tokens - 1]))
            if self.finish_reason is None:
                self.allowed = self.matcher.mask()
        except (TokenNotAllowedError, MatcherFailedError) as error:
            self.failure, self.finish_reason = str(error), SequenceFinishReason.ERROR

    def follow_guide(self, token_ids: Sequence[int]) -> None:
        """Let the guide take tokens that were sampled under a copy of it; end the sequence if they do not fit."""
        if self.matcher is None:
            return
        try:
            self.matcher.replay(token_ids)
            if not self.matcher.is_ended:
                self.matcher.mask()  # the engine's matcher fails where this one does
        except (TokenNotAllowedError, MatcherFailedError) as error:
            self.failure, self.finish_reason = str(error), SequenceFinishReason.ERROR

    def take(
        self, token_ids: Sequence[int], logprobs: Sequence[float], *, version_starts: list[tuple[str, int]]
    ) -> None:
        """Append tokens that another process sampled; it also decides when to stop.

        `version_starts`: (version, first generated token), of all tokens so far.
        """
        index, end = self.num_generated, self.num_generated + len(token_ids)
        self.tokens[self.num_tokens : self.num_tokens + len(token_ids)] = token_ids
        if logprobs:
            self.logprobs[index:end] = logprobs
        self.version_starts = version_starts
        self.num_tokens += len(token_ids)

    def spans(self, *, start: int, end: int) -> list[tuple[str, int, int]]:
        """Return (version, start, end) over the generated tokens `start` … `end`, contiguous and in order."""
        starts = self.version_starts
        if not starts:
            return []
        ends = [begin for _, begin in starts[1:]] + [end]
        clipped = [
            (version, max(begin, start), min(stop, end))
            for (version, begin), stop in zip(starts, ends, strict=True)
        ]
        return [span for span in clipped if span[1] < span[2]]
