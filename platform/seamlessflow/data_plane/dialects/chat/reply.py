"""Chat completions in the form that OpenAI clients read: one JSON object, or the chunks of a stream."""

from collections.abc import Sequence
from typing import Any

import msgspec

from seamlessflow.data_plane.dialects.chat.request import ChatOptions
from seamlessflow.data_plane.dialects.events import KEEPALIVE, STREAM_END, data_event
from seamlessflow.data_plane.dialects.likeliest import token_logprobs
from seamlessflow.data_plane.dialects.usage import turn_usage
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, Turn

_encode = msgspec.json.encode


class ChatReply:
    """Encodes the answers of one turn."""

    def __init__(self, turn: Turn, options: ChatOptions, *, created_s: int) -> None:
        model = turn.session.job.name
        self._turn = turn
        self._head = {"id": f"chatcmpl-{turn.turn_id.hex}", "created": created_s, "model": model}
        self._has_usage = options.has_usage
        self._has_logprobs = options.has_logprobs
        self._num_calls = [0] * len(turn.choices)
        self._num_logprobs = [0] * len(turn.choices)

    def whole(self) -> bytes:
        choices = [
            {
                "index": choice.index,
                "message": choice.message(),
                "logprobs": self._logprobs(choice, 0) if self._has_logprobs else None,
                "finish_reason": choice.finish_reason,
            }
            for choice in self._turn.choices
        ]
        return _encode(
            {**self._head, "object": "chat.completion", "choices": choices, "usage": turn_usage(self._turn)}
        )

    def opening(self) -> bytes:
        first = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(choice, first) for choice in self._turn.choices)

    def deltas(self, choice: Choice, deltas: Sequence[Delta]) -> bytes:
        """Return a chunk for each delta. Logprobs go with the first chunk after their tokens were sampled."""
        return b"".join(self._chunk(choice, self._delta(choice, delta)) for delta in deltas)

    def keepalive(self) -> bytes:
        return KEEPALIVE

    def closing(self) -> bytes:
        ends = [self._chunk(choice, {}, finish_reason=choice.finish_reason) for choice in self._turn.choices]
        return b"".join(ends) + (self._usage_chunk() if self._has_usage else b"") + STREAM_END

    def failure(self, error: ApiError) -> bytes:
        return b"data: " + error.body + b"\n\n"

    def _usage_chunk(self) -> bytes:
        body = {
            **self._head,
            "object": "chat.completion.chunk",
            "choices": [],
            "usage": turn_usage(self._turn),
        }
        return data_event(body)

    def _chunk(self, choice: Choice, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        logprobs = None
        if self._has_logprobs and (delta or finish_reason):
            logprobs = self._logprobs(choice, self._num_logprobs[choice.index])
            self._num_logprobs[choice.index] = choice.progress.num_tokens
        entry = {"index": choice.index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        body = {**self._head, "object": "chat.completion.chunk", "choices": [entry]}
        return data_event(body)

    def _delta(self, choice: Choice, delta: Delta) -> dict[str, Any]:
        if delta.reasoning:
            return {"reasoning_content": delta.reasoning}
        if delta.tool_call is None:
            return {"content": delta.content}
        number = self._num_calls[choice.index]
        self._num_calls[choice.index] += 1
        function = {"name": delta.tool_call.name, "arguments": delta.tool_call.arguments}
        call = {"index": number, "id": choice.call_id(number), "type": "function", "function": function}
        return {"tool_calls": [call]}

    def _logprobs(self, choice: Choice, start: int) -> dict[str, Any]:
        return {"content": token_logprobs(self._turn, choice, start), "refusal": None}
