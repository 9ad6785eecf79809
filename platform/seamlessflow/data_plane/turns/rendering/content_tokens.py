"""Finds the tokens of which the content of an answer is made, for clients that ask for their logprobs.

It reads an answer's tokens one by one, beside the `AnswerText` that reads them in pieces, and returns their numbers
from 0. Invariant: the result does not depend on the pieces. Tokens of reasoning, of calls, of marks and of the white
space between them are none of the content; a token that has a part of it is.
"""

from typing import NamedTuple

import numpy as np

from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText, Detokenizer
from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta


class _Token(NamedTuple):
    number: int
    num_chars: int  # that it completed; 0 if bytes of a character are still missing


class ContentTokens:
    """One per answer."""

    def __init__(self, answer: AnswerText) -> None:
        self._answer = answer.again()
        self._hidden = answer.model_text.hidden_ids
        self._detokenizer = Detokenizer(answer.model_text)
        self._num_read = 0
        self._undecided: list[_Token] = []  # since the last content, reasoning or call

    def push(self, token_ids: bytes) -> list[int]:
        """Return the numbers of the tokens that now are known to be content. `token_ids`: the next ones, packed."""
        return [
            number
            for token in np.frombuffer(token_ids, dtype="<i4")
            for number in self._read(int(token), token.tobytes())
        ]

    def finish(self) -> list[int]:
        return self._numbers_of_content(self._answer.finish())

    def _read(self, token: int, packed: bytes) -> list[int]:
        if token not in self._hidden:
            self._undecided.append(_Token(self._num_read, len(self._detokenizer.push([token]))))
        self._num_read += 1
        return self._numbers_of_content(self._answer.push(packed))

    def _numbers_of_content(self, deltas: list[Delta]) -> list[int]:
        """Return the last tokens that make up the content of the deltas; what came before them is no content."""
        if not deltas:
            return []
        num_chars = sum(len(delta.content) for delta in deltas)
        numbers: list[int] = []
        while self._undecided and (num_chars > 0 or (numbers and not self._undecided[-1].num_chars)):
            token = self._undecided.pop()
            numbers.append(token.number)
            num_chars -= token.num_chars
        self._undecided.clear()
        return numbers[::-1]
