"""An answer in the form that the clients of Google's API read: one JSON object, or the chunks of a stream.

A stream is a list of JSON objects that grows, or server-sent events with `alt=sse`. Reasoning is shown as parts with
`thought`, and only if the request asks for it; a call is a part of its own.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from seamlessflow.core.protocol.google_gemini import (
    GeminiAnswer,
    GeminiCandidate,
    GeminiContent,
    GeminiLogprobs,
    GeminiTokenLogprob,
    GeminiTops,
    GeminiUsage,
)
from seamlessflow.data_plane.dialects.events import data_event
from seamlessflow.data_plane.dialects.gemini.errors import gemini_error
from seamlessflow.data_plane.dialects.gemini.request import GeminiOptions
from seamlessflow.data_plane.dialects.likeliest import token_logprobs
from seamlessflow.data_plane.dialects.messages.conversation import input_of
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta, ToolCall
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, Turn

_encode = msgspec.json.encode
Part = dict[str, Any]


class GeminiReply:
    """Encodes the answers of one turn."""

    def __init__(self, turn: Turn, options: GeminiOptions, *, is_list: bool) -> None:
        self._turn = turn
        self._options = options
        self._is_list = is_list
        self._num_chunks = 0
        self._num_calls = [0] * len(turn.choices)

    def whole(self) -> bytes:
        return _encode(
            self._answer([self._ended(choice, self._parts(choice)) for choice in self._turn.choices], True)
        )

    def opening(self) -> bytes:
        return b"[" if self._is_list else b""

    def deltas(self, choice: Choice, deltas: Sequence[Delta]) -> bytes:
        parts = [part for delta in deltas if (part := self._part(choice, delta)) is not None]
        return b"".join(self._chunk([self._candidate(choice, [part])]) for part in parts)

    def keepalive(self) -> bytes:
        return b"\n"  # Google's own client for JavaScript takes a comment for broken JSON

    def closing(self) -> bytes:
        ends = [self._ended(choice, [{"text": ""}]) for choice in self._turn.choices]
        return self._chunk(ends, is_last=True) + (b"]" if self._is_list else b"")

    def failure(self, error: ApiError) -> bytes:
        body = gemini_error(error)
        if not self._is_list:
            return data_event(body)
        return (b"," if self._num_chunks else b"") + _encode(body) + b"]"

    def _chunk(self, candidates: list[GeminiCandidate], *, is_last: bool = False) -> bytes:
        self._num_chunks += 1
        answer = self._answer(candidates, is_last)
        if not self._is_list:
            return data_event(answer)
        return (b",\n" if self._num_chunks > 1 else b"") + _encode(answer)

    def _answer(self, candidates: list[GeminiCandidate], has_usage: bool) -> GeminiAnswer:
        return GeminiAnswer(
            candidates=candidates,
            usage_metadata=self._usage() if has_usage else None,
            model_version=self._turn.session.job.name,
            response_id=self._turn.turn_id.hex,
        )

    def _part(self, choice: Choice, delta: Delta) -> Part | None:
        if delta.tool_call is not None:
            number = self._num_calls[choice.index]
            self._num_calls[choice.index] += 1
            return self._call(choice, number, delta.tool_call)
        if delta.reasoning:
            return {"text": delta.reasoning, "thought": True} if self._options.has_thoughts else None
        return {"text": delta.content}

    def _parts(self, choice: Choice) -> list[Part]:
        parsed, parts = choice.text.parsed, list[Part]()
        if parsed.reasoning and self._options.has_thoughts:
            parts.append({"text": parsed.reasoning, "thought": True})
        if parsed.content or not parsed.tool_calls:
            parts.append({"text": parsed.content})
        return parts + [self._call(choice, number, call) for number, call in enumerate(parsed.tool_calls)]

    def _call(self, choice: Choice, number: int, call: ToolCall) -> Part:
        asked = {"id": choice.call_id(number), "name": call.name, "args": input_of(call.arguments)}
        return {"functionCall": asked}

    def _candidate(self, choice: Choice, parts: list[Part]) -> GeminiCandidate:
        return GeminiCandidate(content=GeminiContent(parts=parts), index=choice.index)

    def _ended(self, choice: Choice, parts: list[Part]) -> GeminiCandidate:
        ended = self._candidate(choice, parts)
        ended.finish_reason = "MAX_TOKENS" if choice.finish_reason == "length" else "STOP"
        ended.logprobs_result = self._logprobs(choice) if self._options.has_logprobs else None
        return ended

    def _logprobs(self, choice: Choice) -> GeminiLogprobs:
        tokens = token_logprobs(self._turn, choice, 0)
        return GeminiLogprobs(
            chosen_candidates=[GeminiTokenLogprob(token=t.token, log_probability=t.logprob) for t in tokens],
            top_candidates=[
                GeminiTops(
                    candidates=[
                        GeminiTokenLogprob(token=top.token, log_probability=top.logprob)
                        for top in t.top_logprobs
                    ]
                )
                for t in tokens
            ],
        )

    def _usage(self) -> GeminiUsage:
        num_prompt = self._turn.plan.num_prompt_tokens
        num_sampled = sum(choice.progress.num_tokens for choice in self._turn.choices)
        num_thoughts = sum(choice.num_reasoning_tokens for choice in self._turn.choices)
        return GeminiUsage(
            prompt_token_count=num_prompt,
            candidates_token_count=num_sampled - num_thoughts,
            total_token_count=num_prompt + num_sampled,
            thoughts_token_count=num_thoughts,
            cached_content_token_count=self._turn.plan.num_cached_tokens,
        )
