"""Answers without a client are given once, to just the same request; what nobody will ask for stops growing."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from seamlessflow.core.trajectory.asked_sampling import AskedSampling
from seamlessflow.data_plane.turns.trajectory_manager.earlier_answers import Begun, Wanted
from seamlessflow.data_plane.turns.trajectory_manager.in_flight import InFlight
from seamlessflow.data_plane.turns.trajectory_manager.unclaimed import SLOT_BYTES, UnclaimedAnswers

JOB, SLOT = uuid4(), (uuid4(), 3)
WANTED = Wanted(b"prompt", AskedSampling(), max_tokens=8, num_choices=1, end_ids=(2,))


def answered(token_ids: bytes = b"\1\0\0\0") -> Begun:
    begun = WANTED.begun()
    begun.progresses[0].token_ids += token_ids
    return begun


def growing() -> Begun:
    return replace(WANTED.begun(), growth=asyncio.create_task(asyncio.sleep(60)))


async def is_stopped(begun: Begun) -> bool:
    assert begun.growth is not None
    await asyncio.wait([begun.growth], timeout=0)
    return begun.growth.cancelled()


async def test_answers_are_given_in_their_order_and_none_twice() -> None:
    unclaimed, first, second = UnclaimedAnswers(), answered(), growing()
    for begun in (first, answered(b""), second):  # what has no token and does not grow is nothing
        unclaimed.add(SLOT, JOB, begun)
    assert unclaimed.take((SLOT[0], 4), WANTED) is None
    assert [unclaimed.take(SLOT, WANTED) for _ in range(3)] == [first, second, None]


@pytest.mark.parametrize("other", [{"prompt_ids": b"x"}, {"max_tokens": 9}, {"stop": ("x",)}])
async def test_another_request_gets_nothing(other: dict[str, object]) -> None:
    unclaimed = UnclaimedAnswers()
    unclaimed.add(SLOT, JOB, answered())
    assert unclaimed.take(SLOT, replace(WANTED, **other)) is None  # type: ignore[arg-type]


async def test_what_is_dropped_stops_growing() -> None:
    unclaimed, one, other = UnclaimedAnswers(), growing(), growing()
    unclaimed.add(SLOT, JOB, one)
    unclaimed.add((SLOT[0], 4), uuid4(), other)
    unclaimed.drop_job(JOB)
    assert await is_stopped(one)
    assert not await is_stopped(other)
    unclaimed.drop((SLOT[0], 4))
    assert await is_stopped(other)


async def test_the_oldest_make_room() -> None:
    unclaimed, old, new = UnclaimedAnswers(max_bytes=SLOT_BYTES + 200), growing(), growing()
    unclaimed.add(SLOT, JOB, old)
    unclaimed.add((SLOT[0], 4), JOB, new)
    assert await is_stopped(old)
    assert unclaimed.take(SLOT, WANTED) is None
    assert unclaimed.take((SLOT[0], 4), WANTED) is new


async def test_a_slot_waits_for_the_requests_of_its_failed_sessions() -> None:
    unclaimed, flight = UnclaimedAnswers(), InFlight.here()
    assert not await unclaimed.has_waited(SLOT)
    unclaimed.expect(SLOT, JOB, [flight])
    asyncio.get_running_loop().call_soon(flight.end)
    assert await unclaimed.has_waited(SLOT)
    assert not await unclaimed.has_waited(SLOT)
