"""How long a trainer lets a step compute: by the longest before it."""

import asyncio

import pytest

from seamlessflow_workers.train import step_watch
from seamlessflow_workers.train.step_watch import StepStalled, StepWatch


async def test_limit_follows_the_longest_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_watch, "SHORTEST_LIMIT_S", 0.0)
    watch = StepWatch()
    assert watch.limit_s == step_watch.FIRST_STEP_LIMIT_S

    assert await watch.wait(result("a", after_s=0.05)) == "a"
    after_first_s = watch.limit_s
    assert after_first_s >= step_watch.LONGER_THAN_BEFORE * 0.05
    await watch.wait(result("b"))
    assert watch.limit_s == after_first_s


async def test_short_steps_leave_time_for_a_busy_machine() -> None:
    watch = StepWatch()
    await watch.wait(result("a"))
    assert watch.limit_s == step_watch.SHORTEST_LIMIT_S


async def test_a_step_beyond_the_limit_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_watch, "SHORTEST_LIMIT_S", 0.2)
    watch = StepWatch()
    await watch.wait(result("a"))
    with pytest.raises(StepStalled, match=r"the longest before it took 0\.0 s"):
        await watch.wait(asyncio.Event().wait())


async def test_the_failure_of_a_step_is_its_own() -> None:
    async def broken() -> None:
        raise ValueError("nan")

    with pytest.raises(ValueError, match="nan"):
        await StepWatch().wait(broken())


async def result(value: str, *, after_s: float = 0.0) -> str:
    await asyncio.sleep(after_s)
    return value
