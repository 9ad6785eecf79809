"""Takes a heartbeat: stores what a machine reports, and tells others only what changed.

Invariant: `anchor_at`, the server's time at the machine's monotonic zero, is fixed for a boot. A report with another
fence than the phase's changes nothing. A new boot fails the live phases that the old one had taken.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from django.db import transaction
from django.db.models import F

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat
from seamlessflow.control_plane.cluster.phases import phase_move
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import engines_notify, event_record, scheduler_notify
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.services import phase_succeed
from seamlessflow.control_plane.telemetry.ledger_services import Boot, ledger_close, ledger_extend
from seamlessflow.control_plane.telemetry.services import metrics_record
from seamlessflow.control_plane.worker_protocol.orders import reply_build
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PHASE_MOVES, PhaseState
from seamlessflow.core.protocol.worker import Heartbeat, HeartbeatReply, PhaseReport, WeightsArrival


@dataclass(frozen=True, slots=True)
class _Sender:
    """The machine that reports, and its boot."""

    machine: Machine
    boot_id: UUID

    @property
    def author(self) -> str:
        return f"machine:{self.machine.name}"


def heartbeat_take(*, machine_id: UUID, heartbeat: Heartbeat, now: datetime) -> HeartbeatReply | None:
    """Store a heartbeat and answer with the machine's orders. Returns None if the machine is gone.

    If a phase ended that has a successor, the answer already holds the successor's order. The successor is leased after
    the report is committed, because a lease locks machine and job, which must be locked before any phase.
    """
    row = _heartbeat_store(machine_id, heartbeat, now)
    if row is None:
        return None
    for report in heartbeat.phases:
        if report.state is PhaseState.ENDED:
            phase_succeed(phase_id=report.phase_id, fence=report.fence, machine_id=machine_id)
    return reply_build(
        machine=row.machine,
        phases=_live_phases(machine_id),
        num_intervals_acked=row.num_intervals_acked,
        now=now,
    )


@transaction.atomic
def _heartbeat_store(machine_id: UUID, heartbeat: Heartbeat, now: datetime) -> MachineHeartbeat | None:
    row, is_new_boot = _row_locked(machine_id, heartbeat, now)
    if row is None:
        return None
    sender = _Sender(row.machine, heartbeat.boot_id)
    boot = Boot(machine_id=machine_id, boot_id=heartbeat.boot_id, anchor_at=row.anchor_at)
    row.num_intervals_acked = ledger_extend(
        boot=boot, intervals=heartbeat.intervals, num_acked=row.num_intervals_acked
    )
    _row_write(row, boot, heartbeat, now)
    phases = _live_phases(machine_id)
    if is_new_boot:
        _orphans_fail(sender, phases)
    _reports_apply(sender, phases, heartbeat.phases)
    if (
        is_new_boot
    ):  # a phase that moves wakes the scheduler itself; which version it serves changes no decision
        scheduler_notify(reason=f"heartbeat of {row.machine.name}")
    return row


def _row_locked(
    machine_id: UUID, heartbeat: Heartbeat, now: datetime
) -> tuple[MachineHeartbeat | None, bool]:
    """Lock the machine's row and set it to this boot; return it, and whether the boot is new."""
    rows = MachineHeartbeat.objects.select_for_update(of=("self",)).select_related("machine")
    row = rows.filter(machine_id=machine_id).first()
    anchor_at = now - timedelta(seconds=heartbeat.monotonic_s)
    if row is None:
        if not Machine.objects.filter(id=machine_id).exists():
            return None, False
        MachineHeartbeat.objects.get_or_create(
            machine_id=machine_id,
            defaults={"boot_id": heartbeat.boot_id, "anchor_at": anchor_at, "received_at": now},
        )
        return rows.get(machine_id=machine_id), True
    if row.boot_id == heartbeat.boot_id:
        return row, False
    ledger_close(
        machine_id=machine_id,
        boot_id=row.boot_id,
        state=row.open_state,
        cause=row.open_cause,
        until=row.received_at,
    )
    row.boot_id, row.anchor_at, row.num_intervals_acked = heartbeat.boot_id, anchor_at, 0
    return row, True


def _row_write(row: MachineHeartbeat, boot: Boot, heartbeat: Heartbeat, now: datetime) -> None:
    row.received_at = now
    row.open_state = heartbeat.open_state or ""
    row.open_cause = heartbeat.open_cause or ""
    row.open_since_at = None if heartbeat.open_since_s is None else boot.moment(heartbeat.open_since_s)
    row.num_in_flight = next(
        (report.num_in_flight for report in heartbeat.phases if report.num_in_flight is not None), None
    )
    if heartbeat.capabilities is not None:
        row.capabilities = msgspec.to_builtins(heartbeat.capabilities)
    row.save(force_update=True)


def _live_phases(machine_id: UUID) -> list[Phase]:
    phases = Phase.objects.filter(machine_id=machine_id, state__in=sorted(LIVE_PHASE_STATES))
    return list(phases.annotate(latest_version=F("job__latest_version")))


def _orphans_fail(sender: _Sender, phases: list[Phase]) -> None:
    """Fail the phases that an earlier boot took, because children die with their supervisor."""
    for phase in phases:
        if phase.boot_id is not None and phase.boot_id != sender.boot_id:
            phase_move(
                phase_id=phase.id,
                to=PhaseState.FAILED,
                reason=f"the supervisor of {sender.machine.name} was restarted",
                author=sender.author,
            )


def _reports_apply(sender: _Sender, phases: list[Phase], reports: list[PhaseReport]) -> None:
    live = {(phase.id, phase.fence): phase for phase in phases if phase.boot_id in (None, sender.boot_id)}
    for report in reports:
        phase = live.get((report.phase_id, report.fence))
        if phase is not None:
            # Store facts before the move, so that gateways that hear of an active phase find its endpoint.
            _facts_store(sender, phase, report)
            _state_follow(sender, phase, report)


def _facts_store(sender: _Sender, phase: Phase, report: PhaseReport) -> None:
    told = {"endpoint": report.endpoint, "served_version": report.served_version}
    fresh = {
        name: value for name, value in told.items() if value is not None and value != getattr(phase, name)
    }
    if not fresh or report.state in (PhaseState.ENDED, PhaseState.FAILED):
        return
    Phase.objects.filter(id=phase.id, fence=phase.fence).update(**fresh)
    engines_notify(job_id=phase.job_id)
    arrival = report.arrival
    if arrival is not None and arrival.version == fresh.get("served_version"):
        _arrival_record(sender, phase, arrival)


def _arrival_record(sender: _Sender, phase: Phase, arrival: WeightsArrival) -> None:
    """Record how a version reached an engine, once for each: its metrics, and an event if a transfer failed."""
    values = {
        f"perf/weights_{arrival.transport}_s": arrival.seconds,
        f"perf/weights_{arrival.transport}_bytes": float(arrival.num_bytes),
    }
    metrics_record(job_id=phase.job_id, project_id=phase.project_id, step=arrival.version, values=values)
    if arrival.fallback:
        event_record(
            kind="weights.fallback",
            subject_type=SubjectType.PHASE,
            subject_id=phase.id,
            job_id=phase.job_id,
            project_id=phase.project_id,
            author=sender.author,
            reason=_storable(arrival.fallback),
            data={"machine_id": str(phase.machine_id), "version": arrival.version},
        )


def _storable(text: str) -> str:
    """Replace NUL, which a last log line may hold but a text column cannot."""
    return text.replace("\0", "\ufffd")


def _state_follow(sender: _Sender, phase: Phase, report: PhaseReport) -> None:
    if report.state == phase.state or not PHASE_MOVES.allows(PhaseState(phase.state), report.state):
        return
    phase_move(
        phase_id=phase.id,
        fence=report.fence,
        boot_id=sender.boot_id,
        to=report.state,
        reason=_storable(report.reason),
        author=sender.author,
    )
