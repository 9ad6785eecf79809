"""The engines of one rollout child: all are started together, and one that is lost is started again alone.

It takes a way to start an engine, and reports when one is ready or lost. It returns the engines that are ready. An
engine whose device was cordoned stays lost. Invariants: an engine that was lost is gone before the next one takes its
number; the set fails with the reason of its last engine, once no other engine works or is being started for the first
time, or at once if an engine cannot use a file or value of the job.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from seamlessflow.core.lifecycle.phases import FailureCause
from seamlessflow_workers.phases.engine_client import EngineError
from seamlessflow_workers.phases.engine_replica import EngineReplica
from seamlessflow_workers.phases.watched import ChildFailure
from seamlessflow_workers.process.failures import FailureCount

T = TypeVar("T")
log = logging.getLogger(__name__)


class ReplicaSet:
    """Starting → working, until `run` raises or is cancelled."""

    def __init__(
        self,
        num: int,
        *,
        make: Callable[[int], EngineReplica],
        start: Callable[[EngineReplica], Awaitable[None]],
        wait_for_memory: Callable[[], Awaitable[None]],
        loading: asyncio.Lock,
        on_change: Callable[[], None],
        on_lost: Callable[[EngineReplica], None],
        may_start_again: Callable[[EngineReplica], bool],
    ) -> None:
        """`start` returns when the engine is ready, or raises ChildFailure. `loading` is locked while engines start.
        `wait_for_memory` returns when the devices have memory for one that starts again."""
        self._make = make
        self._start = start
        self._wait_for_memory = wait_for_memory
        self._loading = loading
        self._on_change = on_change
        self._on_lost = on_lost
        self._may_start_again = may_start_again
        self._replicas = [make(number) for number in range(num)]
        self._first_tries = set(range(num))  # that are not over
        self._given_up = set[int]()
        self._all_tried = asyncio.Event()

    @property
    def all(self) -> list[EngineReplica]:
        return self._replicas

    @property
    def ready(self) -> list[EngineReplica]:
        return [replica for replica in self._replicas if replica.is_ready]

    @property
    def is_asleep(self) -> bool:
        """Whether all engines sleep and none is being started, besides those that are not started again."""
        return all(replica.is_asleep or replica.number in self._given_up for replica in self._replicas)

    async def run(self) -> None:
        """Keep all engines running until cancelled. Raises ChildFailure with the last of them."""
        keeping: list[asyncio.Task[None]] = []
        trying = asyncio.create_task(self._all_tried.wait())
        try:
            async with self._loading:
                keeping = [asyncio.create_task(self._keep(number)) for number in range(len(self._replicas))]
                await asyncio.wait({trying, *keeping}, return_when=asyncio.FIRST_COMPLETED)
            for task in asyncio.as_completed(keeping):  # those that end are not started again
                await task
        finally:
            for one in (trying, *keeping):
                one.cancel()
            await asyncio.gather(trying, *keeping, return_exceptions=True)

    async def close(self) -> None:
        """End all engines; nothing of them is left."""
        await asyncio.gather(*(replica.close() for replica in self._replicas))

    async def each(
        self, verb: Callable[[EngineReplica], Awaitable[T]], replicas: list[EngineReplica] | None = None
    ) -> dict[EngineReplica, T]:
        """Do the same with several engines at once; return the results of those that succeed. The others are lost."""
        chosen = self.ready if replicas is None else replicas
        outcomes = await asyncio.gather(*map(verb, chosen), return_exceptions=True)
        results = {}
        for replica, outcome in zip(chosen, outcomes, strict=True):
            if isinstance(outcome, EngineError):
                replica.lose(f"{replica.noun} failed: {outcome}")
            elif isinstance(outcome, ChildFailure):
                replica.lose(str(outcome))
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                results[replica] = outcome
        return results

    async def _keep(self, number: int) -> None:
        """Start one engine again and again, as long as it may be. Raises ChildFailure if it was the last one."""
        failures = FailureCount()
        while True:
            replica = self._replicas[number]
            try:
                await self._bring_up(replica, failures)
                await replica.stay()
            except ChildFailure as error:
                replica.lose(str(error))
                if error.cause is FailureCause.INPUT:  # it would fail the others as well
                    raise
                self._on_lost(replica)
                failures.add()
                self._first_try_over(number)
                if not self._has_others(number):
                    raise
                log.warning("%s; the others go on", error)
            self._on_change()
            await replica.close()
            self._replicas[number] = self._make(number)
            self._replicas[number].problem = replica.problem
            if not self._may_start_again(replica):
                log.warning("%s is not started again: its device is cordoned", replica.noun)
                self._given_up.add(number)
                return

    async def _bring_up(self, replica: EngineReplica, failures: FailureCount) -> None:
        if replica.number in self._first_tries:  # `run` has the lock for all of them
            await self._start(replica)
        else:
            await asyncio.sleep(failures.delay_s)
            await self._wait_for_memory()
            async with self._loading:
                await self._start(replica)
        failures.loaded()
        self._first_try_over(replica.number)
        self._on_change()

    def _first_try_over(self, number: int) -> None:
        self._first_tries.discard(number)
        if not self._first_tries:
            self._all_tried.set()

    def _has_others(self, number: int) -> bool:
        """Whether another engine works, or is being started for the first time."""
        others = (replica for replica in self._replicas if replica.number != number)
        return any(replica.is_ready or replica.number in self._first_tries for replica in others)
