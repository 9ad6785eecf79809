"""Lets programs start gradually: a few for each core at a time, because starts need more processor than what follows.

In: the start of a program, and a sign that it works (it printed something or ended). Invariant: of one `Starts`, at
most its number of programs are starting at once. A program counts as starting until its sign, or for START_S.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

Program = TypeVar("Program")
START_S = 0.5
STARTS_PER_CORE = 2


class Starts:
    def __init__(self, num_at_once: int | None = None) -> None:
        self._slots = asyncio.Semaphore(num_at_once or STARTS_PER_CORE * len(os.sched_getaffinity(0)))

    async def start(
        self, start: Callable[[], Awaitable[Program]], *, sign: Callable[[], Awaitable[object]]
    ) -> Program:
        """Start a program once few others are starting, and return it."""
        async with self._slots:
            program = await start()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_S):
                    await sign()
            return program
