"""Completions in the form that OpenAI clients read: one JSON object, or the chunks of a stream."""

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from seamlessflow.core.protocol.openai_chat import Usage
from seamlessflow.core.protocol.openai_completions import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
)
from seamlessflow.data_plane.dialects.completions.request import CompletionOptions
from seamlessflow.data_plane.dialects.events import KEEPALIVE, STREAM_END, data_event
from seamlessflow.data_plane.dialects.likeliest import ShownToken, likeliest, shown_tokens
from seamlessflow.data_plane.dialects.usage import turn_usage
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, Turn


class CompletionReply:
    """Encodes the answers of one turn."""

    def __init__(self, turn: Turn, options: CompletionOptions, *, created_s: int) -> None:
        self._turn = turn
        self._created_s = created_s
        self._options = options
        self._num_logprobs = [0] * len(turn.choices)  # tokens whose logprobs were sent
        self._num_chars = [0] * len(turn.choices)  # of their text

    def whole(self) -> bytes:
        choices = [
            self._choice(choice, choice.text.parsed.content, is_last=True) for choice in self._turn.choices
        ]
        return msgspec.json.encode(self._completion(choices, turn_usage(self._turn)))

    def opening(self) -> bytes:
        return b""

    def deltas(self, choice: Choice, deltas: Sequence[Delta]) -> bytes:
        text = "".join(delta.content for delta in deltas)
        return data_event(self._completion([self._choice(choice, text)])) if text else b""

    def keepalive(self) -> bytes:
        return KEEPALIVE

    def closing(self) -> bytes:
        ends = [
            data_event(self._completion([self._choice(choice, "", is_last=True)]))
            for choice in self._turn.choices
        ]
        usage = data_event(self._completion([], turn_usage(self._turn))) if self._options.has_usage else b""
        return b"".join(ends) + usage + STREAM_END

    def failure(self, error: ApiError) -> bytes:
        return b"data: " + error.body + b"\n\n"

    def _completion(
        self, choices: list[CompletionChoice], usage: Usage | msgspec.UnsetType = msgspec.UNSET
    ) -> Completion:
        return Completion(
            id=f"cmpl-{self._turn.turn_id.hex}",
            created=self._created_s,
            model=self._turn.session.job.name,
            choices=choices,
            usage=usage,
        )

    def _choice(self, choice: Choice, text: str, *, is_last: bool = False) -> CompletionChoice:
        reason: Literal["stop", "length"] = "length" if choice.finish_reason == "length" else "stop"
        return CompletionChoice(
            index=choice.index,
            text=text,
            logprobs=self._logprobs(choice) if self._options.has_logprobs else None,
            finish_reason=reason if is_last else None,
        )

    def _logprobs(self, choice: Choice) -> CompletionLogprobs:
        """Return the logprobs of the tokens that were sampled since the last call for this answer."""
        start = self._num_logprobs[choice.index]
        ids = np.frombuffer(bytes(choice.progress.token_ids), dtype="<i4")[start:].tolist()
        values = np.frombuffer(bytes(choice.progress.logprobs), dtype="<f4")[start:].tolist()
        tokenizer = self._turn.session.job.text.tokenizer
        found = shown_tokens(tokenizer, ids, values, num_first=0 if start else 1)
        lengths = (len(shown.text) for shown in found)
        offsets = np.cumsum([self._num_chars[choice.index], *lengths]).tolist()
        self._num_logprobs[choice.index] += len(ids)
        self._num_chars[choice.index] = offsets[-1]
        has_top = choice.progress.asked.num_top > 0
        top = [_by_name(tops) for tops in likeliest(self._turn, choice, start)] if has_top else []
        return CompletionLogprobs(
            tokens=[_name(shown) for shown in found],
            token_logprobs=values,
            top_logprobs=top,
            text_offset=offsets[:-1],
        )


def _name(shown: ShownToken) -> str:
    """Return a token's text; one that is less than a character is named by its bytes, as OpenAI names it."""
    if shown.raw == shown.text.encode():
        return shown.text
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in shown.raw)


def _by_name(found: Sequence[ShownToken]) -> dict[str, float]:
    """Return the logprobs by the tokens' names. A token whose name another one has is named by its number."""
    named: dict[str, float] = {}
    for shown in found:
        name = _name(shown)
        named[f"token_id:{shown.token_id}" if name in named else name] = shown.logprob
    return named
