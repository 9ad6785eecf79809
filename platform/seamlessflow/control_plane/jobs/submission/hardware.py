"""Reads the hardware that the machines of a project report, for the defaults of its jobs."""

from uuid import UUID

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat, PoolGrant, reporting
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.core.hardware_defaults import Hardware
from seamlessflow.core.types.labels import labels_of
from seamlessflow.core.types.pools import OPEN_POOL


def hardware_load(*, project_id: UUID) -> list[Hardware]:
    """Return the machines of the project's pools that report, by name."""
    grants = PoolGrant.objects.values_list("pool", "project_id")
    pools = {pool for pool, project in grants if project == project_id}
    if OPEN_POOL not in {pool for pool, _ in grants}:
        pools.add(OPEN_POOL)
    known = MachineHeartbeat.objects.filter(reporting(database_now()))
    machines = Machine.objects.filter(pool__in=pools, heartbeat__in=known).select_related("heartbeat")
    return [
        Hardware(
            tags=frozenset(machine.tags),
            labels=labels_of(machine.heartbeat.capabilities),
            engine_kinds=frozenset(machine.heartbeat.capabilities.get("engine_kinds", ())),
        )
        for machine in machines.order_by("name")
    ]
