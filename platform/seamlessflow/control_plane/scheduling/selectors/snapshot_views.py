"""Turns rows of machines, phases and jobs into the values that the scheduling rules read."""

import functools
from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from seamlessflow.control_plane.cluster.models import Machine, PoolGrant
from seamlessflow.control_plane.common.resolved_specs import ResolvedSpec
from seamlessflow.control_plane.scheduling.models import MachineJudgement, Phase
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.decisions import NextPhase
from seamlessflow.core.scheduling.heartbeats import unheard_limit_s
from seamlessflow.core.scheduling.snapshot import (
    GangView,
    JobView,
    MachineView,
    PhaseView,
    QuarantineView,
)
from seamlessflow.core.sizing.job_needs import device_memory
from seamlessflow.core.types.devices import Device
from seamlessflow.core.types.labels import labels_of
from seamlessflow.core.types.pools import OPEN_POOL
from seamlessflow.core.types.tags import Role

Grants = Mapping[str, Collection[UUID]]


def gang_view(
    gang_id: UUID | None, member: int | None, first_failure: str | None, has_ended: bool
) -> GangView | None:
    """Return the gang of a phase, if any. `first_failure`: why its first failed phase failed; None if none did."""
    if gang_id is None or member is None:
        return None
    failure = "" if first_failure is None else first_failure or "it failed"
    return GangView(id=gang_id, member=member, failure=failure, has_ended=has_ended)


def next_view(role: str, job_id: UUID | None, num_batches: int | None, reason: str) -> NextPhase | None:
    """Return the phase that was decided to follow one; None if none was (`role` is empty)."""
    return NextPhase(role=Role(role), job_id=job_id, num_batches=num_batches, reason=reason) if role else None


def phase_view(phase: Phase, now: datetime) -> PhaseView:
    seen: Any = phase  # annotated by `selectors.live_phases`
    since = phase.leased_at
    if phase.state == PhaseState.DRAINING and phase.draining_at is not None:
        since = phase.draining_at
    elif phase.state == PhaseState.ACTIVE and phase.active_at is not None:
        since = phase.active_at
    return PhaseView(
        id=phase.id,
        job_id=phase.job_id,
        role=Role(phase.role),
        state=PhaseState(phase.state),
        fence=phase.fence,
        desired_version=phase.desired_version,
        served_version=phase.served_version,
        age_s=(now - since).total_seconds(),
        num_batches=phase.num_batches,
        then=next_view(phase.next_role, phase.next_job_id, phase.next_num_batches, phase.next_reason),
        gang=gang_view(phase.gang_id, phase.gang_member, seen.gang_failure, seen.gang_has_ended),
    )


def machine_view(
    machine: Machine,
    phases: Collection[PhaseView],
    now: datetime,
    judgement: MachineJudgement | None = None,
) -> MachineView:
    """Return a machine with its live phases and its judgement."""
    heartbeat = getattr(machine, "heartbeat", None)
    unheard_s = float("inf") if heartbeat is None else (now - heartbeat.received_at).total_seconds()
    limit_s = unheard_limit_s(0.0 if heartbeat is None else heartbeat.interval_s)
    bare = MachineView(
        id=machine.id,
        name=machine.name,
        tags=frozenset(machine.tags),
        is_healthy=unheard_s <= limit_s,
        is_cordoned=machine.is_cordoned,
        is_draining=machine.is_draining,
        pool=machine.pool,
        cost=machine.cost,
        unheard_s=unheard_s,
        unheard_limit_s=limit_s,
        quarantine=_quarantine_view(judgement, now),
        judged_fence=0 if judgement is None else judgement.judged_fence,
        **reported_fields({} if heartbeat is None else heartbeat.capabilities),
    )
    return functools.reduce(MachineView.with_phase, phases, bare)


def _quarantine_view(judgement: MachineJudgement | None, now: datetime) -> QuarantineView | None:
    if judgement is None or judgement.quarantined_at is None or judgement.until_at is None:
        return None
    return QuarantineView(
        reason=judgement.reason,
        num=judgement.num_quarantines,
        backoff_s=(judgement.until_at - judgement.quarantined_at).total_seconds(),
        age_s=(now - judgement.quarantined_at).total_seconds(),
        until_at=judgement.until_at,
        is_slow=judgement.is_slow,
    )


def reported_fields(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a machine view that come from the machine's own report, which may not have come yet."""
    devices = msgspec.convert(capabilities.get("devices", []), list[Device])
    cordoned = capabilities.get("device_problems", {})
    working = [device for device in devices if device.id not in cordoned]
    return {
        "num_devices": len(working) if devices else None,
        "has_gpus": any(device.kind == "cuda" for device in devices),
        "labels": labels_of(capabilities),
        "engine_kinds": frozenset(capabilities["engine_kinds"]) if "engine_kinds" in capabilities else None,
        "engine_problems": capabilities.get("engine_problems", {}),
        "agent_slots": capabilities.get("agent_slots", 1),
        "memory": device_memory(working),
    }


def grants_load(*pools: str) -> Grants:
    """Return the projects that each of the pools is granted to."""
    granted: dict[str, set[UUID]] = defaultdict(set)
    rows = PoolGrant.objects.filter(pool__in=pools)
    for pool, project_id in rows.values_list("pool", "project_id"):
        granted[pool].add(project_id)
    return granted


def pools_of(project_id: UUID, pools: Collection[str], grants: Grants) -> frozenset[str]:
    """Return the pools that a project may use. The default pool is open to all until a project is granted it."""
    is_open = {pool for pool in pools if pool == OPEN_POOL and pool not in grants}
    return frozenset(is_open | {pool for pool in pools if project_id in grants.get(pool, ())})


def job_view(
    job_id: UUID,
    resolved: ResolvedSpec,
    pools: frozenset[str],
    *,
    state: JobState = JobState.RUNNING,
    **demand: Any,
) -> JobView:
    """Return a job as the rules read it. `demand`: facts besides the spec, none of which eligibility needs."""
    spec = resolved.spec
    return JobView(
        id=job_id,
        state=state,
        group_size=spec.rollout.group_size,
        groups_per_batch=spec.rollout.groups_per_batch,
        num_updates=spec.train.num_updates,
        staleness_bound=spec.algorithm.staleness_bound,
        has_external_agents=spec.environment.name == "external",
        has_rollout=Role.ROLLOUT in spec.roles,
        engine=spec.rollout.engine,
        needs=resolved.needs,
        slots_per_engine=spec.rollout.max_num_seqs,
        devices_per_engine=spec.rollout.parallel.num_devices,
        pools=pools,
        rollout_tags=frozenset(spec.placement.rollout),
        train_tags=frozenset(spec.placement.train),
        num_train_machines=spec.train.machines.min,
        extra_train_machines=spec.train.machines.max - spec.train.machines.min,
        least_ranks=spec.train.least_ranks,
        agent_tags=frozenset(spec.placement.agent),
        **{"order": 0, "priority": spec.priority, **demand},
    )
