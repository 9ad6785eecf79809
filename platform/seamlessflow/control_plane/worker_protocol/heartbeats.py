"""Takes a heartbeat: stores a machine's report, and notifies others only of changes.

Invariant: `anchor_at`, the server's time at the machine's monotonic zero, is fixed for a boot. A report with another
fence than the phase's changes nothing. A new boot fails the live phases that the old one had taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import transaction

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat
from seamlessflow.control_plane.cluster.services.device_cordons import device_problems, devices_note
from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import engines_notify, event_record, scheduler_notify
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.services.leases import phase_succeed
from seamlessflow.control_plane.telemetry.services.ledger import Boot, ledger_close, ledger_extend
from seamlessflow.control_plane.telemetry.services.points import metrics_record
from seamlessflow.control_plane.worker_protocol.beats import (
    SeenMachine,
    SeenPhase,
    beat_store,
    boot_lock,
    machine_see,
)
from seamlessflow.control_plane.worker_protocol.fleet_size import fleet_size
from seamlessflow.control_plane.worker_protocol.orders import reply_build
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PHASE_MOVES, FailureCause, PhaseState
from seamlessflow.core.protocol.worker import (
    EngineReport,
    Heartbeat,
    HeartbeatReply,
    PhaseReport,
    WeightsArrival,
)


def heartbeat_take(*, machine_id: UUID, heartbeat: Heartbeat, now: datetime) -> HeartbeatReply | None:
    """Store a heartbeat and answer with the machine's orders. Returns None if the machine is gone.

    Most heartbeats report no change: they are stored and answered by one statement, and only what that
    statement shows to be news is applied, in a transaction.
    """
    interval_s = fleet_size.interval_s
    if not _brings_more(heartbeat):
        machine = beat_store(machine_id=machine_id, heartbeat=heartbeat, interval_s=interval_s, now=now)
        if machine is None:
            return None
        if machine.is_this_boot and not _news(machine, heartbeat):
            return reply_build(
                machine, num_intervals_acked=machine.num_intervals, interval_s=interval_s, now=now
            )
    return _news_take(machine_id, heartbeat, interval_s, now)


def _brings_more(heartbeat: Heartbeat) -> bool:
    """Whether a heartbeat is news whatever the machine's row says."""
    return bool(heartbeat.intervals) or heartbeat.capabilities is not None or _has_ends(heartbeat)


def _has_ends(heartbeat: Heartbeat) -> bool:
    return any(report.state in (PhaseState.ENDED, PhaseState.FAILED) for report in heartbeat.phases)


def _changes_orders(heartbeat: Heartbeat) -> bool:
    """Whether the reports may change the machine's orders. That a phase starts or serves does not."""
    return any(report.state not in (PhaseState.STARTING, PhaseState.ACTIVE) for report in heartbeat.phases)


def _news_take(
    machine_id: UUID, heartbeat: Heartbeat, interval_s: float, now: datetime
) -> HeartbeatReply | None:
    """Apply a heartbeat under a lock of the machine's row, then answer.

    If a phase ended that has a successor, the answer already has the successor's order. The successor is leased after
    the report is committed, because a lease locks machine and job, which must be locked before any phase.
    """
    taken = _news_store(machine_id, heartbeat, interval_s, now)
    if taken is None:
        return None
    machine: SeenMachine | None = taken.machine
    for report in heartbeat.phases:
        if report.state is PhaseState.ENDED:
            phase_succeed(phase_id=report.phase_id, fence=report.fence, machine_id=machine_id)
    if taken.is_outdated:
        machine = machine_see(machine_id=machine_id, boot_id=heartbeat.boot_id)
    if machine is None:
        return None
    return reply_build(machine, num_intervals_acked=taken.num_acked, interval_s=interval_s, now=now)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A stored heartbeat. `is_outdated`: the facts behind the answer may have changed since `machine` was read."""

    machine: SeenMachine
    num_acked: int
    is_outdated: bool


@transaction.atomic
def _news_store(machine_id: UUID, heartbeat: Heartbeat, interval_s: float, now: datetime) -> _Taken | None:
    is_new_boot = not boot_lock(machine_id=machine_id, boot_id=heartbeat.boot_id)
    if is_new_boot and not _boot_begin(machine_id, heartbeat, now):
        return None
    machine = beat_store(machine_id=machine_id, heartbeat=heartbeat, interval_s=interval_s, now=now)
    if machine is None or machine.anchor_at is None:
        return None  # deleted while this waited for the lock
    ledger_extend(
        boot=Boot(machine_id=machine_id, boot_id=heartbeat.boot_id, anchor_at=machine.anchor_at),
        intervals=heartbeat.intervals,
        num_stored=machine.num_intervals,
        end_at=machine.ledger_end_at,
        now=now,
    )
    if is_new_boot:
        _orphans_fail(machine, heartbeat.boot_id)
        scheduler_notify(reason=f"heartbeat of {machine.name}")
    _reports_apply(machine, heartbeat)
    if heartbeat.capabilities is not None:
        devices_note(
            machine_id=machine_id,
            before=device_problems(machine.capabilities or {}),
            after=heartbeat.capabilities.device_problems,
            released=machine.released_devices or {},
            author=machine.author,
        )
    num_sent = max((item.seq + 1 for item in heartbeat.intervals), default=0)
    is_outdated = is_new_boot or heartbeat.capabilities is not None or _changes_orders(heartbeat)
    return _Taken(machine, max(machine.num_intervals, num_sent), is_outdated)


def _boot_begin(machine_id: UUID, heartbeat: Heartbeat, now: datetime) -> bool:
    """Lock the machine's row and make it this boot's. Returns False if there is no machine."""
    rows = MachineHeartbeat.objects.select_for_update(of=("self",))
    row = rows.filter(machine_id=machine_id).first()
    anchor_at = now - timedelta(seconds=heartbeat.monotonic_s)
    if row is None:
        if not Machine.objects.filter(id=machine_id).exists():
            return False
        MachineHeartbeat.objects.get_or_create(
            machine_id=machine_id,
            defaults={"boot_id": heartbeat.boot_id, "anchor_at": anchor_at, "received_at": now},
        )
        row = rows.get(machine_id=machine_id)
    if row.boot_id != heartbeat.boot_id:
        ledger_close(
            machine_id=machine_id,
            boot_id=row.boot_id,
            state=row.open_state,
            cause=row.open_cause,
            until=row.received_at,
        )
        row.boot_id, row.anchor_at, row.num_intervals_acked = heartbeat.boot_id, anchor_at, 0
        row.save(update_fields=["boot_id", "anchor_at", "num_intervals_acked"])
    return True


def _orphans_fail(machine: SeenMachine, boot_id: UUID) -> None:
    """Fail the phases that an earlier boot took, because children die with their supervisor."""
    for phase in machine.phases:
        if phase.boot_id is not None and phase.boot_id != boot_id:
            phase_move(
                phase_id=phase.id,
                to=PhaseState.FAILED,
                reason=f"the supervisor of {machine.name} was restarted",
                author=machine.author,
                cause=FailureCause.SILENCE,
            )


def _news(machine: SeenMachine, heartbeat: Heartbeat) -> list[tuple[SeenPhase, PhaseReport]]:
    """Return the reports that change a live phase, each with its phase. A report with another fence changes nothing."""
    live = {
        (phase.id, phase.fence): phase
        for phase in machine.phases
        if phase.boot_id in (None, heartbeat.boot_id)
    }
    reported = [(live.get((report.phase_id, report.fence)), report) for report in heartbeat.phases]
    return [
        (phase, report)
        for phase, report in reported
        if phase is not None and (_fresh_facts(phase, report) or _moves(phase, report))
    ]


def _fresh_facts(phase: SeenPhase, report: PhaseReport) -> dict[str, Any]:
    """Return the facts about engines in the report that differ from the phase's, as they are stored."""
    if report.endpoints is None or report.state in (PhaseState.ENDED, PhaseState.FAILED):
        return {}
    fresh: dict[str, Any] = {}
    if report.served_version not in (None, phase.served_version):
        fresh["served_version"] = report.served_version
    engines = [_lasting(engine) for engine in report.endpoints]
    if engines != phase.engines:
        fresh["engines"] = msgspec.to_builtins(engines)
    return fresh


def _lasting(engine: EngineReport) -> EngineReport:
    """Return the stored facts of an engine. Its requests come and go."""
    return msgspec.structs.replace(engine, num_in_flight=0, problem=_storable(engine.problem))


def _moves(phase: SeenPhase, report: PhaseReport) -> bool:
    return report.state is not phase.state and PHASE_MOVES.allows(phase.state, report.state)


def _reports_apply(machine: SeenMachine, heartbeat: Heartbeat) -> None:
    for phase, report in _news(machine, heartbeat):
        fresh = _fresh_facts(phase, report)
        # The facts are stored with the move, so gateways that hear of an active phase find its endpoint.
        has_moved = _moves(phase, report) and phase_move(
            phase_id=phase.id,
            fence=report.fence,
            boot_id=heartbeat.boot_id,
            to=report.state,
            reason=_storable(report.reason),
            author=machine.author,
            fields=fresh,
            cause=report.cause,
        )
        if fresh and not has_moved:
            _facts_store(machine, phase, fresh)
        _losses_record(machine, phase, report)
        arrival = report.arrival
        if arrival is not None and arrival.version == fresh.get("served_version"):
            _arrival_record(machine, phase, arrival)


def _losses_record(machine: SeenMachine, phase: SeenPhase, report: PhaseReport) -> None:
    """Record each engine that was lost since the last report, while others of its phase go on."""
    known = {engine.replica for engine in phase.engines or () if engine.problem}
    for engine in report.endpoints or ():
        if engine.problem and engine.replica not in known:
            event_record(
                kind="engine.lost",
                subject_type=SubjectType.PHASE,
                subject_id=phase.id,
                job_id=phase.job_id,
                project_id=phase.project_id,
                author=machine.author,
                reason=_storable(
                    f"{engine.problem}; it is started again, and the others of {machine.name} go on"
                ),
                data={"machine": machine.name, "phase_id": str(phase.id), "replica": engine.replica},
            )


def _facts_store(machine: SeenMachine, phase: SeenPhase, fresh: Mapping[str, Any]) -> None:
    live = Phase.objects.filter(id=phase.id, fence=phase.fence, state__in=sorted(LIVE_PHASE_STATES))
    if live.update(**fresh):
        engines_notify(job_id=phase.job_id)


def _arrival_record(machine: SeenMachine, phase: SeenPhase, arrival: WeightsArrival) -> None:
    """Record how a version reached an engine, once for each: its metrics, and an event if a transfer failed."""
    values = {
        f"perf/weights_{arrival.transport}_s": arrival.seconds,
        f"perf/weights_{arrival.transport}_bytes": float(arrival.num_bytes),
    }
    if arrival.staged_bytes:
        values["perf/weights_worker_bytes"] = float(max(arrival.staged_bytes))
    metrics_record(job_id=phase.job_id, project_id=phase.project_id, step=arrival.version, values=values)
    if arrival.fallback:
        event_record(
            kind="weights.fallback",
            subject_type=SubjectType.PHASE,
            subject_id=phase.id,
            job_id=phase.job_id,
            project_id=phase.project_id,
            author=machine.author,
            reason=_storable(arrival.fallback),
            data={"machine_id": str(machine.id), "version": arrival.version},
        )


def _storable(text: str) -> str:
    """Replace NUL, which a last log line may contain but a text column cannot."""
    return text.replace("\0", "\ufffd")
