"""The machine: makes its processes equal to the orders of the control plane, and reports its processes.

It takes heartbeat answers, wake-ups, and moves of phases and children. It starts children and writes phase reports and
the ledger.
Invariants: reconciliations run one at a time, always against the newest answer; there is no await between reading a
state and acting on it; a silent control plane changes nothing.
"""

import asyncio
import dataclasses
import logging
import time
import uuid
from uuid import UUID

import aiohttp
import msgspec

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import Capabilities, Heartbeat, HeartbeatReply, PhaseOrder, WarmProcess
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.phases.controlled import ControlledChild
from seamlessflow_workers.phases.dependencies import Dependencies
from seamlessflow_workers.phases.device_budget import DeviceBudget
from seamlessflow_workers.phases.rollout import RolloutChild
from seamlessflow_workers.phases.running import ChildKey, RunningPhase
from seamlessflow_workers.phases.warm import WarmChild
from seamlessflow_workers.process.fork_server.client import ForkServer, programs_of
from seamlessflow_workers.process.logs import OutputLog
from seamlessflow_workers.process.rendezvous import Rendezvous
from seamlessflow_workers.supervisor.capabilities import machine_capabilities
from seamlessflow_workers.supervisor.config import SupervisorConfig
from seamlessflow_workers.supervisor.device_watch import DeviceWatch
from seamlessflow_workers.supervisor.doorbell_child import Doorbell
from seamlessflow_workers.supervisor.heartbeat import HeartbeatLink
from seamlessflow_workers.supervisor.home import MachineHome
from seamlessflow_workers.supervisor.ledger import LedgerRecorder, Reading
from seamlessflow_workers.supervisor.log_shipper import LogShipper
from seamlessflow_workers.supervisor.reading import MachineView, machine_reading
from seamlessflow_workers.supervisor.reconcile import (
    AbandonPhase,
    Action,
    BeginPhase,
    DrainPhase,
    FenceScope,
    ForgetPhase,
    RefreshPhase,
    RefusePhase,
    StartChild,
    StopChild,
    key_of,
    reconcile,
    scope_of,
)

NUM_INTERVALS_MAX = 256  # in one heartbeat
LEAVE_S = 2.5
STARTING_NEWS_S = 0.1  # a phase that is active sooner needs one heartbeat instead of two in a row
FAREWELL_S = 1.0

log = logging.getLogger(__name__)


class Machine:
    def __init__(self, config: SupervisorConfig, home: MachineHome, session: aiohttp.ClientSession) -> None:
        self._config = config
        self._rendezvous = Rendezvous.open(
            listen_host=config.listen_host, advertised_host=config.advertised_host
        )
        self._devices = DeviceWatch(config.devices, probe=config.probe, on_changed=self._on_devices_changed)
        self._capabilities = msgspec.structs.replace(
            machine_capabilities(config.cores, config.engines, host=config.host, devices=config.devices),
            rendezvous=self._rendezvous.address,
            agent_slots=config.agent_slots,
            device_problems=dict(self._devices.problems),
        )
        self._session = session
        self._sent_capabilities: Capabilities | None = None  # with the newest heartbeat
        self._known_capabilities: Capabilities | None = None  # with the newest that was answered
        self._boot_id = uuid.uuid4()
        self._reply: HeartbeatReply | None = None
        self._phases: dict[UUID, RunningPhase] = {}
        self.children: dict[ChildKey, WarmChild] = {}
        self._child_tasks: set[asyncio.Task[None]] = set()
        self._num_failures: dict[ChildKey, int] = {}
        self._fences: dict[FenceScope, int] = {}  # the highest that began, by scope
        self._previous_role: Role | None = None
        # The live phase that rolls out or trains, and its requests in flight.
        self._observed: tuple[RunningPhase | None, int] = (None, 0)
        self._is_reconciling = False
        self._is_stopping = False
        idle = Reading(LedgerState.IDLE, IdleCause.NO_JOB)
        self._ledger = LedgerRecorder(now_s=time.monotonic(), reading=idle)
        address = {"control_plane_url": config.control_plane_url, "token": config.token}
        self.link = HeartbeatLink(session, **address, build=self.heartbeat, take=self.take)
        self._shipper = LogShipper(session, **address)
        self.fork_server = ForkServer(config, home.logs) if config.has_fork_server else None
        self._dependencies = Dependencies(
            dataclasses.replace(config, devices=self._devices.usable),
            home,
            self._shipper,
            asyncio.Lock(),
            DeviceBudget(self._devices.usable),
            on_moved=self._on_moved,
            on_observed=self._observe,
            on_counted=self._recount,
            on_failed=self._devices.blame,
            are_usable=self._devices.are_usable,
            fork_server=self.fork_server,
            rendezvous_fd=self._rendezvous.listening.fileno(),
        )
        self._doorbell = self._make_doorbell(config, home)

    async def run(self, stopped: asyncio.Event) -> None:
        """Run until `stopped`; then hand over as much as possible, end every child, and send a last heartbeat."""
        waiting = asyncio.create_task(stopped.wait())
        services = [
            asyncio.create_task(service.run()) for service in (self.link, self._shipper, self._devices)
        ]
        if self._doorbell is not None:
            services.append(asyncio.create_task(self._doorbell.run()))
        if self.fork_server is not None:
            services.append(asyncio.create_task(self.fork_server.run()))
        try:
            await asyncio.wait({waiting, *services}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for service in (waiting, *services):
                service.cancel()
            outcomes = await asyncio.gather(*services, return_exceptions=True)
            await self._stop()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    def heartbeat(self) -> Heartbeat:
        self._observe()
        reading = self._ledger.open_reading
        self._sent_capabilities = self._capabilities
        return Heartbeat(
            boot_id=self._boot_id,
            monotonic_s=time.monotonic(),
            capabilities=(None if self._known_capabilities is self._capabilities else self._capabilities),
            phases=[phase.report() for phase in self._phases.values()],
            intervals=self._ledger.batch(num_max=NUM_INTERVALS_MAX),
            open_state=reading.state,
            open_cause=reading.cause,
            open_since_s=self._ledger.open_since_s,
        )

    def take(self, reply: HeartbeatReply) -> None:
        """Take the newest answer, which says what should run."""
        self._reply = reply
        self._known_capabilities = self._sent_capabilities
        self._devices.release(reply.released_devices)
        self._ledger.acknowledge(reply.num_intervals_acked)
        if self.fork_server is not None:
            self.fork_server.want(programs_of(reply.tags, self._config))
        for warm_process in reply.warm_processes:
            if child := self.children.get(ChildKey(warm_process.job_id, warm_process.role)):
                child.warm_process = warm_process  # a child that waits to start takes the newest weights
        self._reconcile()

    def _reconcile(self) -> None:
        self._is_reconciling = False
        if self._reply is None or self._is_stopping:
            return
        self._fences_prune(self._reply)
        warm_processes, settings = self._reply.warm_processes, self._dependencies.settings
        actions = reconcile(
            orders=self._reply.orders,
            warm_processes=warm_processes,
            phases=[phase.known() for phase in self._phases.values()],
            children=[child.known() for child in self.children.values() if not child.is_leaving],
            fences=self._fences,
            postponed=self._dependencies.memory.postponed(warm_processes, settings),
        )
        for action in actions:
            self._act(action)
        self._observe()

    def _fences_prune(self, reply: HeartbeatReply) -> None:
        """Forget the fences of jobs that neither an order nor a phase names: jobs come and go."""
        named = {order.job_id for order in reply.orders}
        named |= {phase.key.job_id for phase in self._phases.values()}
        self._fences = {scope: fence for scope, fence in self._fences.items() if scope in named | {None}}

    def _act(self, action: Action) -> None:
        match action:
            case BeginPhase(order):
                self._begin(order)
            case RefusePhase(order):
                self._add_phase(order).end("it does not run on this machine")
            case RefreshPhase(order):
                self._refresh(order)
            case DrainPhase(phase_id):
                self._child_of(phase_id).drain()
            case AbandonPhase(phase_id):
                self._child_of(phase_id).abandon()
            case ForgetPhase(phase_id):
                del self._phases[phase_id]
            case StartChild(warm_process):
                self._start_child(warm_process)
            case StopChild(key):
                self.children[key].stop()

    def _begin(self, order: PhaseOrder) -> None:
        self._fences[scope_of(key_of(order))] = order.fence
        phase = self._add_phase(order)
        warm_process = self._warm_process_of(order)
        if warm_process is None:
            phase.fail(
                f"the order of phase {order.phase_id} came without a warm process for its job and role"
            )
            return
        child = self.children.get(phase.key)
        is_outdated = (
            child is not None and order.role is not Role.AGENT and child.devices != self._devices.usable
        )
        if child is not None and (
            is_outdated or not child.fits(order) or self._dependencies.memory.is_outgrown(child)
        ):
            child.stop()
        if child is None or child.is_leaving:
            child = self._start_child(warm_process)
        child.begin(phase)

    def _add_phase(self, order: PhaseOrder) -> RunningPhase:
        phase = RunningPhase(order, on_moved=self._on_moved, on_observed=self._observe)
        self._phases[order.phase_id] = phase
        self.link.wake(within_s=STARTING_NEWS_S)
        return phase

    def _refresh(self, order: PhaseOrder) -> None:
        child = self._child_of(order.phase_id)
        if order != self._phases[order.phase_id].order:
            child.refresh(order)

    def _child_of(self, phase_id: UUID) -> WarmChild:
        return self.children[self._phases[phase_id].key]

    def _warm_process_of(self, order: PhaseOrder) -> WarmProcess | None:
        assert self._reply is not None
        same = (
            warm_process for warm_process in self._reply.warm_processes if warm_process.job_id == order.job_id
        )
        return next((warm_process for warm_process in same if warm_process.role is order.role), None)

    def _start_child(self, warm_process: WarmProcess) -> WarmChild:
        key = ChildKey(warm_process.job_id, warm_process.role)
        kind = RolloutChild if warm_process.role is Role.ROLLOUT else ControlledChild
        former = self.children.get(key)
        num_failures = former.num_failures if former else self._num_failures.get(key, 0)
        child = kind(warm_process, self._dependencies, num_failures=num_failures)
        self.children[key] = child
        self._child_tasks.add(child.task)
        child.task.add_done_callback(lambda task: self._on_child_gone(child, task))
        return child

    def _on_devices_changed(self) -> None:
        """Report it, and give children that are started from now on the devices that are left. Processes between phases
        start anew with these; one at work ends by itself if its device is dead."""
        self._capabilities = msgspec.structs.replace(
            self._capabilities, device_problems=dict(self._devices.problems)
        )
        self._dependencies = dataclasses.replace(
            self._dependencies,
            settings=dataclasses.replace(self._dependencies.settings, devices=self._devices.usable),
        )
        self._dependencies.memory.resize(self._devices.usable)
        for child in list(self.children.values()):
            if child.key.role is not Role.AGENT and child.phase is None:
                child.stop()
        self._on_moved()

    def _on_child_gone(self, child: WarmChild, task: asyncio.Task[None]) -> None:
        self._child_tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("%s", error, exc_info=error)
        if self.children.get(child.key) is child:
            del self.children[child.key]
            self._num_failures[child.key] = child.num_failures
        self._on_moved()

    def _on_moved(self) -> None:
        """Report soon, and reconcile again after the present call."""
        self._observe()
        self.link.wake()
        if not self._is_reconciling:
            self._is_reconciling = True
            asyncio.get_running_loop().call_soon(self._reconcile)

    def _observe(self) -> None:
        live = [phase for phase in self._phases.values() if not phase.is_over]
        phase = next((one for one in live if one.order.role is not Role.AGENT), None)
        agents = [one for one in live if one.order.role is Role.AGENT]
        for one in agents if phase is None else (phase,):
            if one.state is PhaseState.ACTIVE:
                self._previous_role = one.order.role
        view = MachineView(
            phase=phase.view() if phase else None,
            agents=tuple(one.view() for one in agents),
            previous_role=self._previous_role,
            is_loading=any(child.is_loading for child in self.children.values()),
            warm_jobs=frozenset(r.job_id for r in self._reply.warm_processes) if self._reply else frozenset(),
            is_cordoned=self._reply is not None and self._reply.is_cordoned,
            awaits_gang_of=self._reply.awaits_gang_of if self._reply else None,
        )
        num_in_flight = phase.count_in_flight() if phase else 0
        self._observed = (phase, num_in_flight)
        self._ledger.observe(
            now_s=time.monotonic(), reading=machine_reading(view), num_in_flight=num_in_flight
        )

    def _recount(self) -> None:
        """Count the requests in flight. Only the first and the last of them change its activity."""
        phase, num_before = self._observed
        num_in_flight = phase.count_in_flight() if phase else 0
        if not (num_before and num_in_flight):
            self._observe()
            return
        self._observed = (phase, num_in_flight)
        self._ledger.recount(now_s=time.monotonic(), num_in_flight=num_in_flight)

    async def _stop(self) -> None:
        self._is_stopping = True
        children = list(self.children.values())
        if children:
            await asyncio.wait([asyncio.ensure_future(child.leave()) for child in children], timeout=LEAVE_S)
        for child in children:
            child.stop()
        if self._child_tasks:
            await asyncio.wait(self._child_tasks)
        self._rendezvous.close()
        if self._doorbell is not None:
            await self._doorbell.stop()
        try:
            await self.link.send(timeout_s=FAREWELL_S)
            async with asyncio.timeout(FAREWELL_S):
                await self._shipper.ship_all()
        except Exception as error:  # noqa: BLE001 - we stop, whatever keeps the last heartbeat from arriving
            log.info("could not report to the control plane that this machine is stopping: %r", error)

    def _make_doorbell(self, config: SupervisorConfig, home: MachineHome) -> Doorbell | None:
        if config.broker_url is None:
            log.info("BROKER_URL is not set: orders come only with heartbeats")
            return None
        return Doorbell(
            machine=config.name,
            broker_url=config.broker_url,
            cores=config.cores,
            output=OutputLog(home.logs, role="doorbell"),
            on_wake_up=self.link.wake,
        )
