"""Turns an answer's tokens into deltas for the client: detokenises, finds stop strings, reasoning and tool calls.

`AnswerText` takes packed ids as they are sampled and returns deltas. A stop string ends the answer: the text from it on
is withheld, the token that completed it stays, and later tokens must be cut (`num_kept_tokens`). `Detokenizer` never
cuts a character in two.
"""

from collections.abc import Sequence

import numpy as np

from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES
from seamlessflow.data_plane.turns.rendering.model_text import ModelText
from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta, ParsedOutput, Tools
from seamlessflow.data_plane.turns.rendering.parsers.families import Family
from seamlessflow.data_plane.turns.rendering.parsers.plain import PlainParser

_REPLACEMENT = "\ufffd"
_MAX_PIECES = 4  # tokens that may be one character: none has more bytes


class AnswerText:
    """Growing → stopped (a stop string was met) or finished. One per choice."""

    def __init__(
        self,
        text: ModelText,
        *,
        stop: Sequence[str],
        tools: Tools | None,
        starts_in_reasoning: bool,
        is_plain: bool = False,
        has_one_call: bool = False,
    ) -> None:
        """Parse the text of one answer.

        `tools`: the tools of the request; None: tool calls are not looked for. `is_plain`: the text is not parsed, and
        all of it is content. `has_one_call`: the first call ends the answer, as a stop string does.
        """
        self._text = text
        self._asked = (tools, starts_in_reasoning, is_plain)
        self._has_one_call = has_one_call
        self._stop = tuple(stop)
        self._num_held = max((len(s) for s in self._stop), default=1) - 1
        self._detokenizer = Detokenizer(text)
        self._parser = (
            PlainParser()
            if is_plain
            else text.family.parser(
                tools=tools, starts_in_reasoning=starts_in_reasoning, has_one_call=has_one_call
            )
        )
        self._pending = ""  # text that may be the beginning of a stop string
        self._num_tokens = 0
        self._ids = bytearray()  # kept only to find the token that completes a stop string or the only call
        self.num_kept_tokens: int | None = None
        self.stopped_by: str | None = None  # the stop string that was met
        self.parsed = ParsedOutput()
        self.is_asked_again = (
            False  # it gets one token after another, to find the one that completes the call
        )

    @property
    def family(self) -> Family:
        return self._text.family

    @property
    def model_text(self) -> ModelText:
        return self._text

    def again(self) -> "AnswerText":
        """Return one that reads the same answer from its beginning."""
        tools, starts_in_reasoning, is_plain = self._asked
        return AnswerText(
            self._text,
            stop=self._stop,
            tools=tools,
            starts_in_reasoning=starts_in_reasoning,
            is_plain=is_plain,
            has_one_call=self._has_one_call,
        )

    def num_reasoning_tokens(self, token_ids: bytes) -> int:
        """Return how many of the answer's tokens are reasoning, up to the mark that ends it.

        Where no one token is this mark, the text of the reasoning is counted.
        """
        if not self.parsed.reasoning:
            return 0
        ids, mark = np.frombuffer(token_ids, dtype="<i4"), self.family.end_think
        mark_id = self._text.tokenizer.token_to_id(mark) if mark else None
        ends = np.flatnonzero(ids == mark_id)
        if len(ends):
            return int(ends[0]) + 1
        return min(len(ids), len(self._text.encode(self.parsed.reasoning)) // TOKEN_BYTES)

    def is_stopped(self) -> bool:
        return self.num_kept_tokens is not None

    def push(self, token_ids: bytes) -> list[Delta]:
        """Return the deltas that these tokens complete; none after a stop string or the only call."""
        if self.is_stopped():
            return []
        ids = np.frombuffer(token_ids, dtype="<i4").tolist()
        self._num_tokens += len(ids)
        if self._stop or self._has_one_call:
            self._ids += token_ids
        return self._take(self._detokenizer.push(ids))

    def finish(self) -> list[Delta]:
        """Return the deltas that were held back; after a stop string, only those that the parser held back."""
        if self._is_called:
            return []
        deltas = [] if self.is_stopped() else self._take(self._detokenizer.flush())
        if not self.is_stopped():
            deltas += self._parse(self._pending)
            self._pending = ""
        rest = self._up_to_call(self._parser.finish())
        self._collect(rest)
        return deltas + rest

    def _take(self, new: str) -> list[Delta]:
        self._pending += new
        found = [(at, stop) for stop in self._stop if (at := self._pending.find(stop)) >= 0]
        if found:
            at, self.stopped_by = min(found, key=lambda place: place[0])
            self.num_kept_tokens = self._completing_token()
            shown, self._pending = self._pending[:at], ""
        else:
            cut = max(0, len(self._pending) - self._num_held)
            shown, self._pending = self._pending[:cut], self._pending[cut:]
        return self._parse(shown)

    def _parse(self, shown: str) -> list[Delta]:
        deltas = self._up_to_call(self._parser.push(shown) if shown else [])
        self._collect(deltas)
        if self._is_called and self.num_kept_tokens is None:
            self.num_kept_tokens = self._calling_token()
        return deltas

    @property
    def _is_called(self) -> bool:
        """Whether the only call has come."""
        return self._has_one_call and bool(self.parsed.tool_calls)

    def _up_to_call(self, deltas: list[Delta]) -> list[Delta]:
        """Leave out what follows the only call."""
        if not self._has_one_call:
            return deltas
        at = next((at for at, delta in enumerate(deltas) if delta.tool_call is not None), len(deltas))
        return deltas[: at + 1]

    def _calling_token(self) -> int:
        """Return how many tokens it takes to complete the first call."""
        num_tokens = len(self._ids) // TOKEN_BYTES
        if self.is_asked_again:
            return num_tokens
        again = self.again()
        again.is_asked_again = True
        for number in range(num_tokens):
            again.push(bytes(self._ids[number * TOKEN_BYTES : (number + 1) * TOKEN_BYTES]))
            if again._is_called:
                return number + 1
        return num_tokens

    def _collect(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            self.parsed.add(delta)

    def _completing_token(self) -> int:
        """Return how many tokens it takes to complete the first stop string."""
        ids = np.frombuffer(bytes(self._ids), dtype="<i4").tolist()
        low, high = 1, len(self._ids) // TOKEN_BYTES
        while low < high:
            middle = (low + high) // 2
            text = self._text.decode(ids[:middle])
            if any(s in text for s in self._stop):
                high = middle
            else:
                low = middle + 1
        return low


class Detokenizer:
    """Turns ids, in chunks of any size, into text; all pieces, including that of `flush`, form the text of all ids.

    It decodes a sliding window: from the last safe chunk boundary to the newest token. Bytes that are no character
    after four tokens become replacement characters, so a text of such bytes is neither withheld nor decoded again.
    """

    def __init__(self, text: ModelText) -> None:
        self._text = text
        self._window: list[int] = []
        self._num_context = 0  # ids at the window's start whose text was returned already

    def push(self, token_ids: Sequence[int]) -> str:
        """Return the text that these ids complete; "" if there is none yet."""
        hidden = self._text.hidden_ids
        self._window += [i for i in token_ids if i not in hidden]
        new = self._new_text()
        if new.endswith(_REPLACEMENT):  # bytes of a character are still missing, or never come
            return self._without_tail() if len(self._window) - self._num_context >= _MAX_PIECES else ""
        self._window = self._window[self._num_context :]
        self._num_context = len(self._window)
        return new

    def _without_tail(self) -> str:
        """Return the new text up to the tokens that may still begin a character."""
        whole = self._text.decode(self._window)
        for num_pieces in range(1, _MAX_PIECES):
            at = len(self._window) - num_pieces
            before, tail = self._text.decode(self._window[:at]), self._text.decode(self._window[at:])
            if tail == _REPLACEMENT and before + tail == whole:
                break
        else:
            at, before = len(self._window), whole
        known = self._text.decode(self._window[: self._num_context]) if self._num_context else ""
        begin = max(0, at - _MAX_PIECES)
        self._window, self._num_context = self._window[begin:], at - begin
        return before[len(known) :]

    def flush(self) -> str:
        """Return the remaining text; broken characters become replacement characters, as when all ids are decoded."""
        new = self._new_text()
        self._num_context = len(self._window)
        return new

    def _new_text(self) -> str:
        if len(self._window) == self._num_context:
            return ""
        known = self._text.decode(self._window[: self._num_context]) if self._num_context else ""
        return self._text.decode(self._window)[len(known) :]
