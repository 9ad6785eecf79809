"""Programs start a few at a time, and a slot is free again once a program works."""

import asyncio

from seamlessflow_workers.agents import starts
from seamlessflow_workers.agents.starts import Starts


async def test_only_a_few_programs_start_at_once() -> None:
    gate, starting, most = Starts(3), 0, 0

    async def start() -> int:
        nonlocal starting, most
        starting += 1
        most = max(most, starting)
        return starting

    async def sign() -> None:
        nonlocal starting
        await asyncio.sleep(0.01)
        starting -= 1

    await asyncio.gather(*(gate.start(start, sign=sign) for _ in range(20)))
    assert most == 3


async def test_a_silent_program_keeps_its_slot_only_for_a_moment() -> None:
    gate = Starts(1)
    never = asyncio.Event()

    async def start() -> str:
        return "program"

    async with asyncio.timeout(10 * starts.START_S):
        for _ in range(2):
            assert await gate.start(start, sign=never.wait) == "program"
