"""A process of a child, watched from its start to its end.

It takes a command and the coroutines that load the process and work with it. However the process ends, and also if it
does not load in time, gives no sign of life for too long or takes too much memory, the coroutine that runs ends with a
ChildFailure that says why in one sentence. Invariant: nothing of the process is left after `stop`.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import NoReturn

from seamlessflow.core.lifecycle.phases import FailureCause
from seamlessflow.core.liveness.pulse import ASK_EVERY_S, Pulse
from seamlessflow.core.protocol.child import EXIT_INPUT_FAULT, INPUT_FAULT_MARK
from seamlessflow_workers.process.child import ChildCommand, ChildProcess, Output, Spawner
from seamlessflow_workers.process.memory_use import tree_memory_bytes
from seamlessflow_workers.process.settings import MEMORY_SHARE_VARIABLE

STOP_GRACE_S = 1.0
# Weights may come from a slow disk and kernels may have to be compiled; meanwhile nothing answers.
LOADING_LIMIT_S = 1800.0
MEASURE_EVERY_S = 0.25  # memory: a process that builds a model takes some GiB a second at most
GIB = 1 << 30
NOTICE_EXIT_S = 0.5  # between a broken connection and the exit status that explains it
Work = Callable[[], Coroutine[object, object, None]]


class ChildFailure(RuntimeError):
    """The child cannot go on; the message says why in one sentence for people. `cause`: work or input."""

    def __init__(self, reason: str, cause: FailureCause = FailureCause.WORK) -> None:
        super().__init__(reason)
        self.cause = cause


class WatchedProcess:
    """Spawned → loaded → gone. `ask_for_sign` asks for a sign of life; the answer, whenever it comes, is a `beat`."""

    def __init__(
        self,
        noun: str,
        *,
        silence_limit_s: float,
        ask_for_sign: Callable[[], None],
        memory_limit_bytes: int | None = None,
    ) -> None:
        """`noun`: what messages call it; `memory_limit_bytes`: for it and its descendants."""
        self._noun = noun
        self._ask_for_sign = ask_for_sign
        self._pulse = Pulse(silence_limit_s)
        self._process: ChildProcess | None = None
        self._memory_limit_bytes = memory_limit_bytes
        self._killed = ""  # why it was killed

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def beat(self) -> None:
        self._pulse.beat()

    async def spawn(
        self, command: ChildCommand, *, cores: frozenset[int], log: Output, fork_server: Spawner | None
    ) -> None:
        try:
            self._process = await ChildProcess.spawn(command, cores=cores, log=log, fork_server=fork_server)
        except OSError as error:
            raise ChildFailure(f"{self._noun} could not be started: {error}") from error

    async def load(self, load: Work) -> None:
        """Wait until it is loaded, but not so long that a hanging process blocks the machine."""
        await self._until_exit(self._in_time(load))

    async def work(self, work: Work) -> None:
        """Work with it while it gives signs of life."""
        await self._until_exit(self._while_alive(work))

    async def stop(self) -> None:
        if self._process is not None:
            await self._process.stop(grace_s=STOP_GRACE_S)

    async def _until_exit(self, work: Coroutine[object, object, None]) -> None:
        """Run `work`; raise ChildFailure if the process ends first, whichever way that is noticed."""
        assert self._process is not None
        working = asyncio.create_task(work)
        exiting = asyncio.create_task(self._process.wait())
        measuring = asyncio.create_task(self._watch_memory(self._process.pid))
        tasks = (working, exiting, measuring)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and working.exception() is None:
                return
            await asyncio.wait({exiting}, timeout=NOTICE_EXIT_S)
            if self._killed:
                raise ChildFailure(self._killed)
            if exiting.done():
                raise self._failure(exiting.result())
            working.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _failure(self, ending: str) -> ChildFailure:
        assert self._process is not None
        if self._process.exit_code != EXIT_INPUT_FAULT:
            return ChildFailure(f"{self._noun} {ending}")
        last_words = self._process.last_line.removeprefix(INPUT_FAULT_MARK)
        return ChildFailure(f"{self._noun} cannot use what the job names: {last_words}", FailureCause.INPUT)

    async def _in_time(self, load: Work) -> None:
        loading, pulse = asyncio.create_task(load()), Pulse(LOADING_LIMIT_S)
        last_s = time.monotonic()
        try:
            while not loading.done() and not pulse.is_lost:
                await asyncio.wait({loading}, timeout=ASK_EVERY_S)
                now_s = time.monotonic()
                pulse.listened(now_s - last_s)
                last_s = now_s
            if not loading.done():
                self._give_up(f"it did not load within {LOADING_LIMIT_S:.0f} s and was killed")
            loading.result()
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)

    async def _while_alive(self, work: Work) -> None:
        working, watching = asyncio.create_task(work()), asyncio.create_task(self._watch_pulse())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            for task in (watching, working):
                if task.done():
                    task.result()
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    async def _watch_pulse(self) -> None:
        """Kill a process that gave no sign of life for too long, and raise ChildFailure."""
        last_s = time.monotonic()
        while not self._pulse.is_lost:
            self._ask_for_sign()
            await asyncio.sleep(ASK_EVERY_S)
            last_s, elapsed_s = time.monotonic(), time.monotonic() - last_s
            self._pulse.listened(elapsed_s)
        self._give_up(f"it gave no sign of life for {self._pulse.limit_s:.0f} s and was killed")

    async def _watch_memory(self, pid: int) -> None:
        """Kill a process that takes more memory than it may, before the kernel kills others for it."""
        limit = self._memory_limit_bytes
        while True:
            await asyncio.sleep(MEASURE_EVERY_S)
            if limit is not None and (used := tree_memory_bytes(pid)) > limit:
                break
        self._kill(
            f"{self._noun} was killed, because it used {used / GIB:.1f} GiB of memory; {MEMORY_SHARE_VARIABLE} of its "
            f"machine allows {limit / GIB:.1f} GiB"
        )

    def _give_up(self, reason: str) -> NoReturn:
        self._kill(f"{self._noun} stalled: {reason}")
        raise ChildFailure(self._killed)

    def _kill(self, reason: str) -> None:
        assert self._process is not None
        self._killed = reason
        self._process.kill()
