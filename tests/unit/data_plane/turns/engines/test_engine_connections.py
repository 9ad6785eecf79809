"""Connections to engines: what a cut lifeline ends."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from seamlessflow.core.liveness.stall import StallWatch
from seamlessflow.data_plane.turns.engines.connections import EngineConnections
from seamlessflow.data_plane.turns.engines.lifeline import EngineStalled, Lifeline
from tests.fixtures.http_answers import CHUNKED_HEAD, LONG_S, REQUEST, WHOLE, Answer, answers_served, says


@asynccontextmanager
async def engine(*answers: Answer) -> AsyncIterator[tuple[EngineConnections, str]]:
    taken = EngineConnections()
    async with answers_served(*answers, close_client=taken.close) as (url, _):
        yield taken, url


def _lifeline() -> Lifeline:
    return Lifeline(time.monotonic, StallWatch(), num_prompt_tokens=1)


async def test_a_cut_lifeline_ends_the_wait_for_an_answer() -> None:
    lifeline = _lifeline()
    async with engine(says(CHUNKED_HEAD)) as (taken, url):
        connection = await taken.take(url, lifeline)
        connection.ask(REQUEST, silence_s=LONG_S)
        asyncio.get_running_loop().call_later(0.05, lifeline.cut, "it is slow")
        with pytest.raises(EngineStalled, match="it is slow"):
            await connection.read_some()


async def test_a_lifeline_that_was_cut_before_ends_the_next_wait() -> None:
    lifeline = _lifeline()
    lifeline.cut("it is slow")
    async with engine(says(WHOLE)) as (taken, url):
        with pytest.raises(EngineStalled, match="it is slow"):
            await taken.take(url, lifeline)


async def test_a_lifeline_that_is_cut_between_two_waits_ends_the_next() -> None:
    lifeline = _lifeline()
    async with engine(says(WHOLE)) as (taken, url):
        connection = await taken.take(url, lifeline)
        connection.ask(REQUEST, silence_s=LONG_S)
        await connection.head()
        lifeline.cut("it is slow")
        with pytest.raises(EngineStalled, match="it is slow"):
            await connection.read_all()
