"""The rollout child: an engine with its front.

It takes phases with the weights that they should serve, offers an endpoint that serves exactly those, and updates them
in place. A drain hands over: new requests are refused, running ones end with the tokens so far, and the engine sleeps.
Invariants: the front admits a version only while the engine serves it; a version is served only if its files are
complete (they are renamed into place); an engine that failed an update never serves again.
"""

import asyncio
import contextlib
import uuid
from pathlib import Path

from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec, job_spec_parse
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.child import Doing
from seamlessflow.core.protocol.worker import WarmProcess, WeightsReference
from seamlessflow.core.types.ledger import LedgerState
from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.phases.dependencies import Dependencies
from seamlessflow_workers.phases.engine_client import EngineClient, EngineError
from seamlessflow_workers.phases.files import FilesMissing
from seamlessflow_workers.phases.running import RunningPhase
from seamlessflow_workers.phases.warm import ChildFailure, WarmChild
from seamlessflow_workers.process.child import ChildCommand
from seamlessflow_workers.process.device_environment import devices_environment
from seamlessflow_workers.rollout.front import Front
from seamlessflow_workers.weights.manifest import WeightsReadError
from seamlessflow_workers.weights.transports.file.receiving import weights_check

WEIGHTS_POLL_S = 0.01
HAND_OVER_S = 30.0
LEAVE_S = 2.0
ABORT_AGAIN_S = 0.1  # for requests that were on their way to the engine during the last abort


class RolloutChild(WarmChild):
    _served_version = 0
    _is_asleep = False
    _client: EngineClient | None = None
    _front: Front | None = None
    _asking: asyncio.Task[None] | None = None
    _transport = WeightTransport.FILE

    def __init__(self, warm_process: WarmProcess, dependencies: Dependencies, *, num_failures: int) -> None:
        self._changed = asyncio.Event()
        self._socket = dependencies.folders.socket_path(f"engine-{uuid.uuid4().hex[:12]}.sock")
        super().__init__(warm_process, dependencies, num_failures=num_failures)

    async def _prepare(self) -> ChildCommand:
        spec = self._spec()
        self._transport = spec.train.weight_transport
        settings, kind = self._dependencies.settings, spec.rollout.engine
        if problem := settings.engines[kind].problem:
            raise ChildFailure(f"this machine runs no engines of kind {kind}: {problem}")
        if not settings.devices:
            raise ChildFailure("every device of this machine is cordoned")
        model = await self._model_folder()
        weights = self.phase.order.weights if self.phase else self.warm_process.weights
        flags: tuple[str, ...] = ()
        if weights.version > 0 and (folder := await self._whole_weights(weights)):
            flags = ("--weights", str(folder))
            self._served_version = weights.version
        return ChildCommand(
            (*settings.engine_commands[kind], *self._engine_flags(spec, model), *flags),
            environment=devices_environment(settings.devices),
        )

    def _spec(self) -> JobSpec:
        try:
            return job_spec_parse(self.warm_process.spec)
        except InvalidJobSpec as error:  # from a newer control plane
            raise ChildFailure(f"this machine cannot read the job's spec: {error}") from error

    def _engine_flags(self, spec: JobSpec, model: Path) -> tuple[str, ...]:
        return (
            # No --seed: engines of one job must not draw the same numbers, nor a restarted engine repeat itself.
            *("--model", str(model), "--uds", str(self._socket)),
            *("--max-model-len", str(spec.model.max_model_len), "--slots", str(spec.rollout.max_num_seqs)),
            *("--weight-version", str(self._served_version)),
            *("--dtype", str(spec.model.dtype), "--device", self._dependencies.settings.device),
        )

    async def _load(self) -> None:
        self._client = EngineClient(self._socket)
        await self._client.wait_healthy()
        try:
            await self._client.check_capabilities()
        except EngineError as error:
            raise ChildFailure(str(error)) from error
        settings = self._dependencies.settings
        self._front = Front(
            engine_socket=self._socket,
            job_id=self.key.job_id,
            on_change=self._dependencies.on_counted,
            listen_host=settings.listen_host,
            advertised_host=settings.advertised_host,
        )
        await self._front.start()

    async def _work(self) -> None:
        try:
            while True:
                self._changed.clear()
                await self._converge()
                await self._changed.wait()
        except EngineError as error:
            raise ChildFailure(f"{self._noun} failed: {error}") from error

    def _ask_for_sign(self) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._await_sign())

    async def _await_sign(self) -> None:
        assert self._client is not None
        if await self._client.gives_sign():
            self._pulse.beat()

    def _on_phase_changed(self) -> None:
        if not self.is_loading:
            self._changed.set()

    async def _converge(self) -> None:
        assert self._client is not None
        phase = self.phase
        if phase is None:
            await self._fall_asleep()
        elif phase.state is PhaseState.DRAINING:
            await self._hand_over()
        elif phase.state is PhaseState.STARTING:
            await self._activate()
        elif phase.order.weights.version > self._served_version:
            await self._update(phase)

    async def _activate(self) -> None:
        assert self.phase is not None
        assert self._front is not None
        assert self._client is not None
        phase, front = self.phase, self._front
        if self._is_asleep:
            await self._client.wake_up()
            self._is_asleep = False
        if phase.order.weights.version > self._served_version:
            await self._swap(phase.order.weights)
        self._changed.set()  # it may have been drained or ordered newer weights meanwhile
        if phase.state is PhaseState.STARTING:
            phase.endpoint = front.endpoint
            phase.served_version = self._served_version
            phase.count_in_flight = lambda: front.num_in_flight
            front.open(token=phase.order.front_token, version=self._served_version)
            phase.activate()

    async def _update(self, phase: RunningPhase) -> None:
        assert self._front is not None
        await self._swap(phase.order.weights)
        self._front.release(version=self._served_version)
        phase.serve(self._served_version)
        self._changed.set()

    async def _swap(self, weights: WeightsReference) -> None:
        """Bring the engine to `weights`, unless the phase is drained before their files are there."""
        assert self.phase is not None
        assert self._front is not None
        assert self._client is not None
        folder = await self._whole_weights(weights)
        if folder is None:
            return
        self.phase.arrival = await self._client.stage_weights(
            folder, version=weights.version, transport=self._transport
        )
        self._front.hold()
        if self.phase.state is PhaseState.ACTIVE:
            self.phase.do(Doing(state=LedgerState.SYNCING))
        await self._client.update_weights(folder, version=weights.version)
        self._served_version = weights.version

    async def _hand_over(self) -> None:
        assert self._front is not None
        self._front.close()
        try:
            async with asyncio.timeout(HAND_OVER_S):
                await self._abort_until_vacant()
        except TimeoutError:
            raise ChildFailure(f"{self._noun} did not end its requests within {HAND_OVER_S:.0f} s") from None
        await self._fall_asleep()
        self._finish_phase()

    async def _abort_until_vacant(self) -> None:
        assert self._front is not None
        assert self._client is not None
        while self._front.num_in_flight:
            await self._client.abort_all()
            with contextlib.suppress(TimeoutError):  # then abort once more
                async with asyncio.timeout(ABORT_AGAIN_S):
                    await self._front.wait_vacant()

    async def _fall_asleep(self) -> None:
        assert self._client is not None
        if not self._is_asleep:
            await self._client.sleep()
            self._is_asleep = True

    async def leave(self) -> None:
        phase = self.phase
        if self._front is None or phase is None:
            return
        self._front.close()
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._abort_until_vacant()
        except (TimeoutError, EngineError):
            return  # the engine cannot end its requests, so gateways see broken connections
        if not phase.is_over:
            self._finish_phase("the supervisor was asked to stop")

    async def _clean_up(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        if self._front is not None:
            await self._front.stop()
        if self._client is not None:
            await self._client.close()
        self._socket.unlink(missing_ok=True)

    async def _whole_weights(self, weights: WeightsReference) -> Path | None:
        """Return the weights' folder once it exists; None if the phase is drained first. Raises ChildFailure."""
        fetching = asyncio.create_task(self._files.hold("weights", weights.uri))
        try:
            await asyncio.sleep(0)  # files that are there already take no longer
            while not fetching.done():
                if self.phase is not None and self.phase.state is PhaseState.DRAINING:
                    return None
                self._await_weights(True)
                await asyncio.wait({fetching}, timeout=WEIGHTS_POLL_S)
            folder = fetching.result()
            await asyncio.to_thread(weights_check, folder, version=weights.version)
        except FilesMissing as error:
            raise ChildFailure(f"the weights of version {weights.version} did not appear: {error}") from error
        except WeightsReadError as error:
            raise ChildFailure(
                f"the weights of version {weights.version} are not complete: {error}"
            ) from error
        finally:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
            self._await_weights(False)
        return folder

    def _await_weights(self, is_awaiting: bool) -> None:
        if self.phase is not None and self.phase.is_awaiting_weights != is_awaiting:
            self.phase.await_weights(is_awaiting)
