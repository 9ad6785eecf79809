"""Turns reports of machines and specs of jobs into the values that the scheduling rules read."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from seamlessflow.control_plane.common.resolved_specs import ResolvedSpec
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.snapshot import JobView
from seamlessflow.core.sizing.job_needs import device_memory
from seamlessflow.core.types.devices import Device
from seamlessflow.core.types.labels import labels_of
from seamlessflow.core.types.tags import Role


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
