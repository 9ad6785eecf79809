"""What is measured of a coroutine is the time in which it keeps the loop, whatever it waits for and however it ends."""

import asyncio
import time

import pytest

from seamlessflow.runtime.timed_steps import timed, timed_too

BUSY_S, IDLE_S = 0.01, 0.05


def _busy() -> None:
    ends_s = time.perf_counter() + BUSY_S
    while time.perf_counter() < ends_s:
        pass


async def _work(result: str) -> str:
    _busy()
    await asyncio.sleep(IDLE_S)
    _busy()
    return result


async def test_steps_count_and_waits_do_not() -> None:
    steps_s, began_s = list[float](), time.perf_counter()
    assert await timed(_work("done"), steps_s.append) == "done"
    assert [each >= BUSY_S for each in steps_s] == [True, True]
    assert sum(steps_s) < time.perf_counter() - began_s - 0.9 * IDLE_S


async def test_a_task_of_a_timed_coroutine_is_timed_too() -> None:
    steps_s = list[float]()

    async def parent() -> list[str]:
        return await asyncio.gather(*(asyncio.create_task(timed_too(_work(name))) for name in "ab"))

    assert await timed(parent(), steps_s.append) == ["a", "b"]
    assert sum(each >= BUSY_S for each in steps_s) == 4
    assert await timed_too(_work("untimed")) == "untimed"


async def test_errors_and_cancellations_pass() -> None:
    async def failing() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            raise ValueError("cancelled inside") from None

    steps_s = list[float]()
    task = asyncio.create_task(timed(failing(), steps_s.append))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(ValueError, match="cancelled inside"):
        await task
    assert len(steps_s) == 2
