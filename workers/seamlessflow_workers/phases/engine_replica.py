"""One engine of a rollout phase: its process, its control calls, and the front through which gateways reach it.

It takes a command, weights and what a phase wants of it; it offers an endpoint that serves exactly one version. All
failures of its verbs are EngineError or ChildFailure, after which it is `lost` for good: the replica set starts
another one in its place. Invariants: the front admits a version only while the engine serves it; an engine that failed
an update never serves again; nothing of the process is left after `close`.
"""

import asyncio
import contextlib
import uuid
from pathlib import Path
from uuid import UUID

from seamlessflow.core.protocol.worker import EngineReport, WeightsArrival
from seamlessflow.core.types.devices import Device
from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.phases.dependencies import Dependencies
from seamlessflow_workers.phases.engine_client import EngineClient, EngineError
from seamlessflow_workers.phases.watched import ChildFailure, WatchedProcess
from seamlessflow_workers.process.child import ChildCommand, Output
from seamlessflow_workers.process.device_environment import devices_cores
from seamlessflow_workers.rollout.front import Front

HAND_OVER_S = 30.0
ABORT_AGAIN_S = 0.1  # for requests that were on their way to the engine during the last abort


class EngineReplica:
    """Loading → ready (asleep ⇄ awake, closed ⇄ open to the gateways of a phase) → lost."""

    def __init__(
        self,
        number: int,
        devices: tuple[Device, ...],
        dependencies: Dependencies,
        *,
        noun: str,
        job_id: UUID,
        silence_limit_s: float,
    ) -> None:
        """`noun`: what messages call it."""
        self.number = number
        self.devices = devices
        self.noun = noun
        self.served_version = 0
        self.is_ready = self.is_open = self.is_asleep = False
        self.kept_bytes = 0  # of each of its devices, while it sleeps
        self.problem = ""  # why it, or the one before it, was lost
        self.socket = dependencies.folders.socket_path(f"engine-{uuid.uuid4().hex[:12]}.sock")
        self._dependencies = dependencies
        self._client = EngineClient(self.socket)
        self._front: Front | None = None
        self._job_id = job_id
        self._process = WatchedProcess(
            noun,
            silence_limit_s=silence_limit_s,
            ask_for_sign=self._ask_for_sign,
            memory_limit_bytes=dependencies.settings.memory_limit_bytes,
        )
        self._asking: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def num_in_flight(self) -> int:
        return self._front.num_in_flight if self._front is not None else 0

    def report(self) -> EngineReport:
        if not self.is_open or self._front is None:
            return EngineReport(replica=self.number, problem=self.problem)
        return EngineReport(
            replica=self.number,
            endpoint=self._front.endpoint,
            served_version=self.served_version,
            num_in_flight=self.num_in_flight,
        )

    async def start(self, command: ChildCommand, *, version: int, log: Output) -> None:
        """Start the process, which begins with `version`, and wait until it is ready. Raises ChildFailure."""
        self.served_version = version
        await self._process.spawn(
            command,
            cores=devices_cores(self.devices, otherwise=self._dependencies.settings.cores),
            log=log,
            fork_server=self._dependencies.fork_server,
        )
        await self._process.load(self._load)
        self.is_ready, self.problem = True, ""

    async def stay(self) -> None:
        """Raise ChildFailure once the engine is lost, in whichever way."""
        await self._process.work(self._until_lost)

    def lose(self, reason: str) -> None:
        """Give the engine up."""
        self.is_ready = self.is_open = False
        self.problem = reason
        self._lost.set()

    async def wake_up(self) -> None:
        if self.is_asleep:
            await self._client.wake_up()
            self.is_asleep = False

    async def fall_asleep(self) -> None:
        if not self.is_asleep:
            self.kept_bytes = await self._client.sleep()
            self.is_asleep = True

    def open(self, *, token: str) -> None:
        """Admit the gateways of a phase."""
        assert self._front is not None
        self._front.open(token=token, version=self.served_version)
        self.is_open = True

    def close_front(self) -> None:
        """Refuse new requests; those in flight run to their end."""
        self.is_open = False
        if self._front is not None:
            self._front.close()

    async def stage(self, folder: Path, *, version: int, transport: WeightTransport) -> WeightsArrival:
        """Receive and check a version while the engine goes on serving the one before."""
        return await self._client.stage_weights(folder, version=version, transport=transport)

    async def update(self, folder: Path, *, version: int) -> None:
        """Serve the version that was staged. Requests in flight stay, and new ones wait."""
        assert self._front is not None
        self._front.hold()
        await self._client.update_weights(folder, version=version)
        self.served_version = version
        self._front.release(version=version)

    async def hand_over(self) -> None:
        """Refuse new requests and end those that run with the tokens so far."""
        self.close_front()
        try:
            async with asyncio.timeout(HAND_OVER_S):
                await self.abort_until_vacant()
        except TimeoutError:
            raise ChildFailure(f"{self.noun} did not end its requests within {HAND_OVER_S:.0f} s") from None

    async def abort_until_vacant(self) -> None:
        while self._front is not None and self._front.num_in_flight:
            await self._client.abort_all()
            with contextlib.suppress(TimeoutError):  # then abort once more
                async with asyncio.timeout(ABORT_AGAIN_S):
                    await self._front.wait_vacant()

    async def close(self) -> None:
        """End it; nothing of it is left."""
        self.is_ready = self.is_open = False
        if self._asking is not None:
            self._asking.cancel()
        if self._front is not None:
            await self._front.stop()
        await self._client.close()
        await self._process.stop()
        self.socket.unlink(missing_ok=True)

    async def _load(self) -> None:
        await self._client.wait_healthy()
        try:
            await self._client.check_capabilities()
        except EngineError as error:
            raise ChildFailure(str(error)) from error
        settings = self._dependencies.settings
        front = Front(
            engine_socket=self.socket,
            job_id=self._job_id,
            on_change=self._dependencies.on_counted,
            listen_host=settings.listen_host,
            advertised_host=settings.advertised_host,
        )
        await front.start()
        self._front = front

    async def _until_lost(self) -> None:
        await self._lost.wait()
        raise ChildFailure(self.problem)

    def _ask_for_sign(self) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._await_sign())

    async def _await_sign(self) -> None:
        if await self._client.gives_sign():
            self._process.beat()
