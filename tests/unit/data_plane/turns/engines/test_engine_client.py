"""What the gateway makes of an engine's stream."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from seamlessflow.core.trajectory.answer_progress import FinishReason, TokenChunk
from seamlessflow.data_plane.turns.engines.client import (
    EngineRefused,
    EngineUnavailable,
    _streamed_chunks,
)


class Content:
    """Bytes of a response that have all arrived."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    async def read_some(self) -> bytes:
        raw, self._raw = self._raw, b""
        return raw


@pytest.mark.parametrize("code, failure", [(400, EngineRefused), (500, EngineUnavailable)])
async def test_an_answer_that_no_engine_can_continue_is_not_tried_again(
    code: int, failure: type[Exception]
) -> None:
    event = {"error": {"message": "the guide allows no token here", "code": code}}
    raw = _event(event)

    with pytest.raises(failure, match="allows no token"):
        async for _ in _streamed_chunks(Content(raw), 1):  # type: ignore[arg-type]
            pass


async def test_tokens_that_arrive_together_are_one_piece_with_the_versions_of_each() -> None:
    raw = b"".join([_tokens([1], 3), _tokens([2, 3], 3), _tokens([4], 4), _tokens([], 4, "stop")])

    assert await _pieces(raw) == [
        TokenChunk(_ids([1, 2, 3, 4]), _floats(4), (0, 3, 3, 4), FinishReason.STOP),
    ]


async def test_nothing_is_joined_to_the_end_of_an_answer() -> None:
    raw = b"".join([_tokens([1], 3, "abort"), _tokens([2], 3)])

    assert [piece.token_ids for piece in await _pieces(raw)] == [_ids([1]), _ids([2])]


async def test_tokens_before_an_error_count() -> None:
    raw = _tokens([1], 3) + _event({"error": {"message": "out of memory", "code": 500}})
    pieces = _streamed_chunks(Content(raw), 3)  # type: ignore[arg-type]

    assert (await anext(pieces)).token_ids == _ids([1])
    with pytest.raises(EngineUnavailable, match="out of memory"):
        await anext(pieces)


async def _pieces(raw: bytes) -> list[TokenChunk]:
    return [piece async for piece in _streamed_chunks(Content(raw), 3)]  # type: ignore[arg-type]


def _tokens(ids: list[int], version: int, finish_reason: str | None = None) -> bytes:
    choice = {
        "token_ids_b64": base64.b64encode(_ids(ids)).decode(),
        "logprobs_b64": base64.b64encode(_floats(len(ids))).decode(),
        "weight_version": version,
        "finish_reason": finish_reason,
    }
    return _event({"choices": [choice]})


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def _ids(ids: list[int]) -> bytes:
    return np.asarray(ids, dtype="<i4").tobytes()


def _floats(number: int) -> bytes:
    return np.full(number, -0.5, dtype="<f4").tobytes()
