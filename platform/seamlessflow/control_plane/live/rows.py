"""Fill the rows of live frames.

Takes model instances; returns rows as `core.protocol.live_rows` types them: plain JSON values, times in epoch
milliseconds, shown ids. Invariant: a row depends only on the instances, so equal states give equal rows.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import cast, overload

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.cluster.selectors import health_of, phases_ranked
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import MachineJudgement, Phase
from seamlessflow.control_plane.telemetry.models import LedgerInterval, MetricPoint
from seamlessflow.control_plane.trajectories.models import RolloutGroup
from seamlessflow.core.lifecycle.groups import GroupState
from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.live_rows import (
    DesiredRow,
    EditRow,
    EngineRow,
    EventRow,
    GroupRow,
    IntervalRow,
    JobRow,
    MachineRow,
    MetricRow,
    PhaseRow,
    QuarantineRow,
)
from seamlessflow.core.types.desired_state import KINDS
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.labels import labels_of
from seamlessflow.core.types.tags import Role


@overload
def epoch_ms(at: datetime) -> int: ...
@overload
def epoch_ms(at: datetime | None) -> int | None: ...
def epoch_ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)


def job_row(job: Job) -> JobRow:
    """Return the row of a job that `live.selectors.job_objects` read."""
    return {
        "id": show_id(IdKind.JOB, job.id),
        "name": job.name,
        "project": job.project.slug,
        "owner": job.created_by.username if job.created_by is not None else None,
        "state": JobState(job.state),
        "state_reason": job.state_reason,
        "waiting_reason": job.waiting_reason,
        "desired": DesiredJobState(job.desired),
        "paused_by": job.paused_by,
        "latest_version": job.latest_version,
        "best_version": getattr(job, "best_version", None),
        "num_updates_done": job.published_batch,
        "num_updates": job.resolved_spec.train.num_updates,
        "created_at": epoch_ms(job.created_at),
        "started_at": epoch_ms(job.started_at),
        "ended_at": epoch_ms(job.ended_at),
        "paused_at": epoch_ms(job.paused_at),
        "paused_ms": round(job.paused_for.total_seconds() * 1000),
    }


def phase_row(phase: Phase) -> PhaseRow:
    """Return the row of a phase. `phase.machine` must be loaded."""
    return {
        "id": show_id(IdKind.PHASE, phase.id),
        "machine": phase.machine.name,
        "role": Role(phase.role),
        "state": PhaseState(phase.state),
        "reason": phase.reason,
        "fence": phase.fence,
        "desired_version": phase.desired_version,
        "served_version": phase.served_version,
        "engines": engine_rows(phase),
        "num_batches": phase.num_batches,
        "gang_member": phase.gang_member,
        "leased_at": epoch_ms(phase.leased_at),
        "ended_at": epoch_ms(phase.ended_at),
    }


def engine_rows(phase: Phase) -> list[EngineRow]:
    return [
        {
            "replica": engine["replica"],
            "served_version": engine.get("served_version"),
            "problem": engine.get("problem", ""),
        }
        for engine in phase.engines or ()
    ]


def machine_row(machine: Machine, phases: Sequence[Phase], *, now: datetime) -> MachineRow:
    """Return the row of a machine with its live phases, without `received_at`, which changes with every heartbeat
    even if nothing else does."""
    phase = next(iter(phases_ranked(phases)), None)
    heartbeat = getattr(machine, "heartbeat", None)
    return {
        **cast(DesiredRow, {name: getattr(machine, name) for name in KINDS}),
        "id": show_id(IdKind.MACHINE, machine.id),
        "name": machine.name,
        "tags": sorted(machine.tags),
        "labels": sorted(labels_of(heartbeat.capabilities)) if heartbeat is not None else [],
        "generation": machine.generation,
        "is_healthy": heartbeat is not None and heartbeat.is_heard(now),
        "health": health_of(machine, now),
        "reason": machine.reason,
        "role": Role(phase.role) if phase is not None else None,
        "phase_state": PhaseState(phase.state) if phase is not None else None,
        "num_agents": sum(one.role == Role.AGENT for one in phases),
        "version": phase.served_version if phase is not None else None,
        "open_state": heartbeat.open_state if heartbeat is not None else "",
        "open_cause": heartbeat.open_cause if heartbeat is not None else "",
        "open_since": epoch_ms(heartbeat.open_since_at) if heartbeat is not None else None,
        "quarantine": _quarantine_row(getattr(machine, "judgement", None)),
        "capabilities": heartbeat.capabilities if heartbeat is not None else {},
    }


def _quarantine_row(judgement: MachineJudgement | None) -> QuarantineRow | None:
    if judgement is None or judgement.quarantined_at is None or judgement.until_at is None:
        return None
    return {
        "since": epoch_ms(judgement.quarantined_at),
        "until": epoch_ms(judgement.until_at),
        "reason": judgement.reason,
        "num_quarantines": judgement.num_quarantines,
    }


def interval_row(interval: LedgerInterval) -> IntervalRow:
    """Return the row of an interval, without its job, because machines serve many projects. `interval.machine` must be
    loaded.
    """
    return {
        "id": interval.id,
        "machine": interval.machine.name,
        "state": interval.state,
        "cause": interval.cause,
        "start": epoch_ms(interval.started_at),
        "end": epoch_ms(interval.ended_at),
    }


def event_row(event: Event) -> EventRow:
    return {
        "id": event.id,
        "at": epoch_ms(event.at),
        "kind": event.kind,
        "from": event.from_state,
        "to": event.to_state,
        "reason": event.reason,
        "author": event.author,
        "data": event.data,
    }


def edit_row(event: Event) -> EditRow:
    """Return the row of an edit of a machine's desired state, from its event."""
    return {
        "id": event.id,
        "machine": event.data.get("name", ""),
        "at": epoch_ms(event.at),
        "reason": event.reason,
        "author": event.author,
        "before": event.data.get("before", {}),
        "after": event.data.get("after", {}),
    }


def metric_row(point: MetricPoint) -> MetricRow:
    return {"name": point.name, "step": point.step, "value": point.value}


def group_row(group: RolloutGroup) -> GroupRow:
    return {
        "id": show_id(IdKind.GROUP, group.id),
        "index": group.index,
        "state": GroupState(group.state),
        "reason": group.reason,
        "size": group.size,
        "num_rewarded": group.num_rewarded,
        "reward_mean": group.reward_mean,
        "reward_std": group.reward_std,
        "min_version": group.min_version,
        "max_version": group.max_version,
        "batch": group.batch_number,
        "created_at": epoch_ms(group.created_at),
    }
