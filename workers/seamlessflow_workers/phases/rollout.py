"""The rollout child: the engines of a machine for one job.

It takes phases with the weights that they should serve, offers endpoints that serve exactly those, and updates them in
place: all engines stage a version, then each updates. A drain hands over: new requests are refused, running ones end
with the tokens so far, and the engines sleep. A lost engine leaves the phase and is started again alone, unless its
device is cordoned; the phase fails with the last one. Invariants: a version is served only if its files are complete
(they are renamed when whole); a phase whose engines are all lost does not end as if it had been handed over.
"""

import asyncio
from collections.abc import Iterable

from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec, job_spec_parse
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.placement.device_sets import device_sets
from seamlessflow.core.protocol.child import Doing
from seamlessflow.core.protocol.worker import EngineReport, WarmProcess, WeightsArrival
from seamlessflow.core.types.devices import Device
from seamlessflow.core.types.ledger import LedgerState
from seamlessflow_workers.phases.dependencies import Dependencies
from seamlessflow_workers.phases.engine_command import engine_command
from seamlessflow_workers.phases.engine_replica import EngineReplica
from seamlessflow_workers.phases.replica_set import ReplicaSet
from seamlessflow_workers.phases.running import RunningPhase
from seamlessflow_workers.phases.warm import WarmChild
from seamlessflow_workers.phases.watched import ChildFailure
from seamlessflow_workers.phases.weights_folder import WeightsFolder
from seamlessflow_workers.process.child import Output
from seamlessflow_workers.process.logs import SharedLog

LEAVE_S = 2.0
_WANTED = (PhaseState.STARTING, PhaseState.ACTIVE)


class RolloutChild(WarmChild):
    _set: ReplicaSet | None = None
    _spec: JobSpec
    _device_sets: list[tuple[Device, ...]]  # one for each engine

    def __init__(self, warm_process: WarmProcess, dependencies: Dependencies, *, num_failures: int) -> None:
        self._changed = asyncio.Event()
        super().__init__(warm_process, dependencies, num_failures=num_failures)
        self._weights = WeightsFolder(self._files, is_over=self._is_draining, on_awaiting=self._await_weights)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(pid for replica in self._replicas if (pid := replica.pid) is not None)

    @property
    def _replicas(self) -> list[EngineReplica]:
        return self._set.all if self._set is not None else []

    async def _live(self) -> None:
        self._spec = self._read_spec()
        self._device_sets = self._device_sets_of(self._spec.rollout.parallel.num_devices)
        await self._wait_for_memory()
        self._set = ReplicaSet(
            len(self._device_sets),
            make=self._make,
            start=self._start,
            wait_for_memory=self._wait_to_restart,
            loading=self._dependencies.loading,
            on_change=self._on_replicas_changed,
            on_lost=lambda replica: self._dependencies.on_failed(replica.problem, replica.devices),
            may_start_again=lambda replica: self._dependencies.are_usable(replica.devices),
        )
        keeping, working = asyncio.create_task(self._set.run()), asyncio.create_task(self._work(self._set))
        try:
            await asyncio.wait({keeping, working}, return_when=asyncio.FIRST_COMPLETED)
            for task in (keeping, working):
                if task.done():
                    task.result()
        finally:
            for task in (keeping, working):
                task.cancel()
            await asyncio.gather(keeping, working, return_exceptions=True)

    async def _clean_up(self) -> None:
        if self._set is not None:
            await self._set.close()

    def _read_spec(self) -> JobSpec:
        try:
            spec = job_spec_parse(self.warm_process.spec)
        except InvalidJobSpec as error:  # from a newer control plane
            raise ChildFailure(f"this machine cannot read the job's spec: {error}") from error
        kind = spec.rollout.engine
        if problem := self._dependencies.settings.engines[kind].problem:
            raise ChildFailure(f"this machine runs no engines of kind {kind}: {problem}")
        return spec

    def _device_sets_of(self, num_each: int) -> list[tuple[Device, ...]]:
        if not self.devices:
            raise ChildFailure("every device of this machine is cordoned")
        if not (sets := device_sets(self.devices, num_each)):
            raise ChildFailure(
                f"this machine has {len(self.devices)} working devices, but an engine of the job needs {num_each}"
            )
        return sets

    # Engines.

    def _make(self, number: int) -> EngineReplica:
        return EngineReplica(
            number,
            self._device_sets[number],
            self._dependencies,
            noun=self._noun if len(self._device_sets) == 1 else f"engine {number}",
            silence_limit_s=self._silence_limit_s,
        )

    async def _start(self, replica: EngineReplica) -> None:
        weights = self.phase.order.weights if self.phase else self.warm_process.weights
        folder = await self._weights.find(weights) if weights.version > 0 else None
        version = weights.version if folder is not None else 0
        command = engine_command(
            self._spec,
            self._dependencies.settings,
            replica.devices,
            model=str(await self._model_folder()),
            socket=replica.socket,
            version=version,
            weights=folder,
            memory_fraction=self._memory.share(self),
        )
        await replica.start(command, version=version, log=self._output(replica))

    def _output(self, replica: EngineReplica) -> Output:
        return (
            self._log if len(self._replicas) == 1 else SharedLog(self._log, name=f"engine {replica.number}")
        )

    async def _wait_to_restart(self) -> None:
        """Wait until one of the engines can load again, which may have been lost while all of them slept."""
        while not self._memory.wake(self):
            self._memory_freed.clear()
            await self._memory_freed.wait()

    def _blame(self, reason: str) -> None:
        """Do nothing: each engine that was lost was blamed on its own devices."""

    def _on_replicas_changed(self) -> None:
        """One is ready, or was lost."""
        if self.is_loading and self._set is not None and self._set.ready:
            self._note_loaded()
        self._dependencies.on_moved()
        self._changed.set()

    # Phases.

    def _on_phase_changed(self) -> None:
        self._memory_freed.set()
        if not self.is_loading:
            self._changed.set()

    async def _work(self, replicas: ReplicaSet) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if replicas.ready:
                await self._converge(replicas)

    async def _converge(self, replicas: ReplicaSet) -> None:
        phase = self.phase
        if phase is None:
            await self._fall_asleep(replicas)
        elif phase.state is PhaseState.DRAINING:
            await self._hand_over(replicas, phase)
        elif phase.state in _WANTED and self._memory.wake(self):
            await self._serve(replicas, phase)

    async def _fall_asleep(self, replicas: ReplicaSet) -> None:
        """Leave the devices to others. While an engine is being started again, they are not free."""
        await replicas.each(EngineReplica.fall_asleep)
        if replicas.is_asleep:
            self._memory.sleep(self, kept_bytes=max(replica.kept_bytes for replica in replicas.all))

    async def _serve(self, replicas: ReplicaSet, phase: RunningPhase) -> None:
        """Bring all engines to the ordered version, and admit gateways to those that do not serve the phase yet."""
        joining = [replica for replica in replicas.ready if not replica.is_open]
        await replicas.each(EngineReplica.wake_up, joining)
        await self._update(replicas, phase)
        joining = [replica for replica in joining if replica.is_ready]
        if phase.state not in _WANTED or not joining:
            return

        async def open_door(replica: EngineReplica) -> None:
            await replica.open(phase.order)

        if not await replicas.each(open_door, joining) or phase.state not in _WANTED:
            return
        if phase.state is PhaseState.STARTING:
            phase.list_engines, phase.count_in_flight = self._reports, self._count_in_flight
            phase.activate()
        else:
            phase.on_moved()

    async def _update(self, replicas: ReplicaSet, phase: RunningPhase) -> None:
        """Have all engines that are behind stage the ordered version, then each of them serve it, unless the phase is
        drained before the files are there."""
        weights = phase.order.weights
        behind = [replica for replica in replicas.ready if replica.served_version < weights.version]
        folder = await self._weights.find(weights) if behind else None
        if folder is None:
            return

        async def stage(replica: EngineReplica) -> WeightsArrival:
            transport = self._spec.train.weight_transport
            return await replica.stage(folder, version=weights.version, transport=transport)

        async def update(replica: EngineReplica) -> None:
            await replica.update(folder, version=weights.version)

        arrivals = await replicas.each(stage, behind)
        if phase.state is PhaseState.ACTIVE:
            phase.do(Doing(state=LedgerState.SYNCING))
        updated = await replicas.each(update, list(arrivals))
        if updated:
            phase.arrival = slowest(arrivals[replica] for replica in updated)
        if phase.state is PhaseState.ACTIVE:
            phase.do(None)
            phase.on_moved()

    async def _hand_over(self, replicas: ReplicaSet, phase: RunningPhase) -> None:
        async def hand_over(replica: EngineReplica) -> None:
            await replica.hand_over(phase.order.phase_id)

        await replicas.each(hand_over)
        await self._fall_asleep(replicas)
        if replicas.ready:
            self._finish_phase()

    async def leave(self) -> None:
        phase = self.phase
        if self._set is None or phase is None:
            return
        ready = self._set.ready
        try:
            async with asyncio.timeout(LEAVE_S):
                await asyncio.gather(*(replica.hand_over(phase.order.phase_id) for replica in ready))
        except (TimeoutError, ChildFailure):
            return  # an engine cannot end its requests, so gateways see broken connections
        if ready and not phase.is_over:
            self._finish_phase("the supervisor was asked to stop")

    def _reports(self) -> list[EngineReport]:
        return [replica.report() for replica in self._replicas]

    def _count_in_flight(self) -> int:
        return sum(replica.num_in_flight for replica in self._replicas)

    def _is_draining(self) -> bool:
        return self.phase is not None and self.phase.state is PhaseState.DRAINING

    def _await_weights(self, is_awaiting: bool) -> None:
        if self.phase is not None and self.phase.is_awaiting_weights != is_awaiting:
            self.phase.await_weights(is_awaiting)


def slowest(arrivals: Iterable[WeightsArrival]) -> WeightsArrival:
    """Return the arrival that is reported for all engines: the one that fell back to files, else the slowest."""
    return max(arrivals, key=lambda arrival: (bool(arrival.fallback), arrival.seconds))
