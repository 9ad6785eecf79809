"""What members of a gang are told of one another, and what a machine waits for that is kept free for one.

Invariant: made anew from rows each time, as every order is; the secret of a gang is its own.
"""

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from django.conf import settings

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.credentials import gang_secret
from seamlessflow.core.protocol.worker import GangOrder
from seamlessflow.core.types.tags import Role


def gang_orders(phases: Sequence[Phase]) -> dict[UUID, GangOrder]:
    """By phase, for those that are members of a gang: one query, and none without such."""
    gang_ids = {phase.gang_id for phase in phases if phase.gang_id is not None}
    if not gang_ids:
        return {}
    rows = Phase.objects.filter(gang_id__in=gang_ids).order_by("gang_member")
    members: dict[UUID, list[tuple[str, str]]] = defaultdict(list)
    for gang_id, name, said in rows.values_list(
        "gang_id", "machine__name", "machine__heartbeat__capabilities"
    ):
        assert gang_id is not None  # asked for above
        members[gang_id].append((name, (said or {}).get("rendezvous", "")))
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


def awaited_gang(machine: Machine) -> UUID | None:
    """The job for whose gang a machine without a phase has handed over."""
    newest = Phase.objects.filter(machine=machine, fence=machine.last_fence, state=PhaseState.ENDED)
    turning = newest.filter(next_role=Role.TRAIN.value).select_related("job").defer("job__spec")
    phase = turning.first()
    return phase.job_id if phase is not None and phase.job.resolved_spec.train.num_machines > 1 else None
