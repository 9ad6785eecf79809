"""Reads the hardware that the machines of a project report, for the defaults of its jobs."""

from uuid import UUID

from seamlessflow.control_plane.accounts.selectors.pools import pools_of
from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat, reporting
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.core.hardware_defaults import Hardware
from seamlessflow.core.types.labels import labels_of


def hardware_load(*, project_id: UUID) -> list[Hardware]:
    """Return the machines of the project's pools that report, by name."""
    known = MachineHeartbeat.objects.filter(reporting(database_now()))
    machines = Machine.objects.filter(pool__in=pools_of([project_id]), heartbeat__in=known)
    return [
        Hardware(
            tags=frozenset(machine.tags),
            labels=labels_of(machine.heartbeat.capabilities),
            engine_kinds=frozenset(machine.heartbeat.capabilities.get("engine_kinds", ())),
        )
        for machine in machines.select_related("heartbeat").order_by("name")
    ]
