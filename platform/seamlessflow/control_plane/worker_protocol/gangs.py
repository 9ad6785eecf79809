"""Returns the members of a gang for one another, and the job for whose gang a machine is kept free.

Invariant: orders are made anew from rows each time; each gang has its own secret.
"""

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from django.conf import settings

from seamlessflow.control_plane.jobs.selectors.jobs import specs_load
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.worker_protocol.beats import SeenMachine, SeenPhase
from seamlessflow.core.protocol.credentials import gang_secret
from seamlessflow.core.protocol.worker import GangOrder
from seamlessflow.core.types.tags import Role


def gang_orders(phases: Sequence[SeenPhase]) -> dict[UUID, GangOrder]:
    """Return the orders of phases that belong to a gang, by phase. Makes one query, or none without such phases."""
    gang_ids = {phase.gang_id for phase in phases if phase.gang_id is not None}
    if not gang_ids:
        return {}
    rows = Phase.objects.filter(gang_id__in=gang_ids).order_by("gang_member")
    members: dict[UUID, list[tuple[str, str]]] = defaultdict(list)
    for gang_id, name, reported in rows.values_list(
        "gang_id", "machine__name", "machine__heartbeat__capabilities"
    ):
        assert gang_id is not None  # the query filters by it
        members[gang_id].append((name, (reported or {}).get("rendezvous", "")))
    return {
        phase.id: GangOrder(
            gang_id=phase.gang_id,
            member=phase.gang_member,
            machines=[name for name, _ in members[phase.gang_id]],
            address=members[phase.gang_id][0][1],
            secret=gang_secret(phase.gang_id, phase.fence, secret=settings.SEAMLESSFLOW_SECRET_KEY),
        )
        for phase in phases
        if phase.gang_id is not None and phase.gang_member is not None
    }


def awaited_gang(machine: SeenMachine) -> UUID | None:
    """Return the job for whose gang a machine without work has ended its phases; None if there is none."""
    job_id = machine.ended_before_gang
    if job_id is None or any(phase.role is not Role.AGENT for phase in machine.phases):
        return None
    return job_id if specs_load([job_id])[job_id].spec.train.num_machines > 1 else None
