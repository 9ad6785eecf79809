"""A request in flight: it is interrupted once, tells who interrupted it, and lets others wait for its end."""

import asyncio

import pytest

from seamlessflow.data_plane.turns.trajectory_manager.in_flight import InFlight

LONG_S = 60.0


async def _serve(started: "asyncio.Future[InFlight]") -> tuple[bool, int]:
    """Wait to be interrupted; returns whether it was by `cancel`, and how often afterwards."""
    flight = InFlight.here()
    started.set_result(flight)
    is_taken, num_more = False, 0
    try:
        await asyncio.sleep(LONG_S)
    except asyncio.CancelledError:
        is_taken = flight.cancellation_taken()
    try:
        await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        num_more += 1
    flight.end()
    return is_taken, num_more


async def _started() -> "tuple[asyncio.Task[tuple[bool, int]], InFlight]":
    started: asyncio.Future[InFlight] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(_serve(started))
    return task, await started


async def test_a_request_is_interrupted_once_and_goes_on() -> None:
    task, flight = await _started()
    flight.cancel()
    await asyncio.sleep(0)
    flight.client_left()
    await flight.ended()
    assert await task == (True, 0)
    assert flight.has_client_left


async def test_an_interruption_by_somebody_else_is_not_taken() -> None:
    task, flight = await _started()
    task.cancel()
    await flight.ended()
    assert await task == (False, 0)


async def test_nothing_interrupts_a_request_that_has_ended() -> None:
    flight = InFlight.here()
    flight.end()
    flight.cancel()
    await flight.ended()
    await asyncio.sleep(0)


async def test_who_waits_for_the_end_may_stop_waiting() -> None:
    task, flight = await _started()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await flight.ended()
    flight.cancel()
    await flight.ended()
    assert await task == (True, 0)
