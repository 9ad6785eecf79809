"""One engine of a rollout phase: its process, its control calls, and the orders to its door for gateways.

It takes a command, weights and what a phase wants of it; it offers an endpoint that serves exactly one version. All
failures of its verbs are EngineError or ChildFailure, after which it is `lost` for good: the replica set starts
another one instead. Invariants: gateways see an engine only while its door is open; one that failed an update
never serves again; nothing of the process is left after `close`.
"""

import asyncio
import dataclasses
import uuid
from pathlib import Path
from uuid import UUID

from seamlessflow.core.protocol.child import Begin, Begun, Drain, Ended, FromChild, Ping, Ready, Serving
from seamlessflow.core.protocol.worker import EngineReport, PhaseOrder, WeightsArrival
from seamlessflow.core.types.devices import Device
from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.phases.control_link import ControlLink
from seamlessflow_workers.phases.dependencies import Dependencies
from seamlessflow_workers.phases.engine_client import EngineClient, EngineError
from seamlessflow_workers.phases.watched import ChildFailure, WatchedProcess
from seamlessflow_workers.process.child import ChildCommand, Output
from seamlessflow_workers.process.device_environment import devices_cores

HAND_OVER_S = 30.0


class EngineReplica:
    """Loading → ready (asleep ⇄ awake, closed ⇄ open to the gateways of a phase) → lost."""

    def __init__(
        self,
        number: int,
        devices: tuple[Device, ...],
        dependencies: Dependencies,
        *,
        noun: str,
        silence_limit_s: float,
    ) -> None:
        """`noun`: what messages call it."""
        self.number = number
        self.devices = devices
        self.noun = noun
        self.served_version = 0
        self.is_ready = self.is_open = self.is_asleep = False
        self.kept_bytes = 0  # of each of its devices, while it sleeps
        self.num_in_flight = 0
        self.problem = ""  # why it, or the one before it, was lost
        self.socket = dependencies.folders.socket_path(f"engine-{uuid.uuid4().hex[:12]}.sock")
        self._dependencies = dependencies
        self._client = EngineClient(self.socket)
        self._link: ControlLink | None = None
        self._endpoint = ""
        self._answer: asyncio.Future[None] | None = None  # to the last order
        self._process = WatchedProcess(
            noun,
            silence_limit_s=silence_limit_s,
            ask_for_sign=lambda: self._send(Ping()),
            memory_limit_bytes=dependencies.settings.memory_limit_bytes,
        )
        self._is_lost = False

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def report(self) -> EngineReport:
        if not self.is_open:
            return EngineReport(replica=self.number, problem=self.problem)
        return EngineReport(
            replica=self.number,
            endpoint=self._endpoint,
            served_version=self.served_version,
            num_in_flight=self.num_in_flight,
        )

    async def start(self, command: ChildCommand, *, version: int, log: Output) -> None:
        """Start the process, which begins with `version`, and wait until it is ready. Raises ChildFailure."""
        self.served_version = version
        self._link, theirs = await ControlLink.open(self.noun)
        with theirs:
            await self._process.spawn(
                _controlled(command, theirs.fileno()),
                cores=devices_cores(self.devices, otherwise=self._dependencies.settings.cores),
                log=log,
                fork_server=self._dependencies.fork_server,
            )
        await self._process.load(self._load)
        self.is_ready, self.problem = True, ""

    async def stay(self) -> None:
        """Raise ChildFailure once the engine is lost, in whichever way."""
        await self._process.work(self._listen)

    def lose(self, reason: str) -> None:
        """Give the engine up."""
        self.is_ready = self.is_open = False
        self.problem = reason
        self._is_lost = True
        self._count(0)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ChildFailure(reason))
        if self._link is not None:
            self._link.close()

    async def wake_up(self) -> None:
        if self.is_asleep:
            await self._client.wake_up()
            self.is_asleep = False

    async def fall_asleep(self) -> None:
        if not self.is_asleep:
            self.kept_bytes = await self._client.sleep()
            self.is_asleep = True

    async def open(self, order: PhaseOrder) -> None:
        """Admit the gateways of a phase."""
        await self._obeyed(Begin(order=order))
        self.is_open = True

    async def stage(self, folder: Path, *, version: int, transport: WeightTransport) -> WeightsArrival:
        """Receive and check a version while the engine goes on serving the one before."""
        return await self._client.stage_weights(folder, version=version, transport=transport)

    async def update(self, folder: Path, *, version: int) -> None:
        """Serve the version that was staged. Requests in flight stay, and new ones wait."""
        await self._client.update_weights(folder, version=version)
        self.served_version = version

    async def hand_over(self, phase_id: UUID) -> None:
        """Refuse new requests and end those that run with the tokens so far."""
        self.is_open = False
        try:
            async with asyncio.timeout(HAND_OVER_S):
                await self._obeyed(Drain(phase_id=phase_id))
        except TimeoutError:
            raise ChildFailure(f"{self.noun} did not end its requests within {HAND_OVER_S:.0f} s") from None

    async def close(self) -> None:
        """End it; nothing of it is left."""
        self.is_ready = self.is_open = False
        if self._link is not None:
            self._link.close()
        await self._client.close()
        await self._process.stop()
        self.socket.unlink(missing_ok=True)

    async def _load(self) -> None:
        assert self._link is not None
        while not isinstance(message := await self._link.receive(), Ready):
            continue
        host = self._dependencies.settings.advertised_host
        self._endpoint = f"http://{f'[{host}]' if ':' in host else host}:{message.port}"
        try:
            await self._client.check_capabilities()
        except EngineError as error:
            raise ChildFailure(str(error)) from error

    async def _listen(self) -> None:
        """Follow the engine's messages. Raises ChildFailure."""
        assert self._link is not None
        try:
            while True:
                self._take(await self._link.receive())
        except ChildFailure:
            if self._is_lost:
                raise ChildFailure(self.problem) from None
            raise

    def _take(self, message: FromChild) -> None:
        self._process.beat()
        if isinstance(message, Serving):
            self._count(message.num_in_flight)
        elif isinstance(message, Begun | Ended) and self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    async def _obeyed(self, order: Begin | Drain) -> None:
        """Send an order and wait until it is carried out. Raises ChildFailure if the engine is lost before."""
        if self._is_lost:
            raise ChildFailure(self.problem)
        self._answer = asyncio.get_running_loop().create_future()
        self._send(order)
        await self._answer

    def _send(self, message: Begin | Drain | Ping) -> None:
        assert self._link is not None
        self._link.send(message)

    def _count(self, num_in_flight: int) -> None:
        if num_in_flight != self.num_in_flight:
            self.num_in_flight = num_in_flight
            self._dependencies.on_counted()


def _controlled(command: ChildCommand, descriptor: int) -> ChildCommand:
    return dataclasses.replace(
        command,
        arguments=(*command.arguments, "--control-fd", str(descriptor)),
        inherited_fds=(descriptor,),
    )
