"""What the gateway makes of an engine's stream."""

import json
import time

import pytest

from seamlessflow.core.liveness.stall import StallWatch
from seamlessflow.data_plane.turns.engines.client import (
    EngineRefused,
    EngineUnavailable,
    Lifeline,
    _streamed_pieces,
)


class Content:
    """Bytes of a response that have all arrived."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    async def readany(self) -> bytes:
        raw, self._raw = self._raw, b""
        return raw


@pytest.mark.parametrize("code, failure", [(400, EngineRefused), (500, EngineUnavailable)])
async def test_an_answer_that_no_engine_can_continue_is_not_tried_again(
    code: int, failure: type[Exception]
) -> None:
    event = {"error": {"message": "the guide allows no token here", "code": code}}
    raw = b"data: " + json.dumps(event).encode() + b"\n\n"
    lifeline = Lifeline(time.monotonic, StallWatch(), num_prompt_tokens=1)

    with pytest.raises(failure, match="allows no token"):
        async for _ in _streamed_pieces(Content(raw), lifeline, 1):  # type: ignore[arg-type]
            pass
