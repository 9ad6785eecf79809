"""Reads machines, narrowed to the pools that the caller's projects may use."""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper, Prefetch, Q, QuerySet

from seamlessflow.control_plane.accounts.selectors.access import Access
from seamlessflow.control_plane.accounts.selectors.pools import pools_of
from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.common.errors import not_found
from seamlessflow.control_plane.common.models import Event, SubjectType
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.machine_health import MachineHealth, machine_health
from seamlessflow.core.types.pools import OPEN_POOL
from seamlessflow.core.types.tags import Role


def machine_list_visible(*, access: Access) -> QuerySet[Machine]:
    """List machines by name, with heartbeat and live phase (`is_own`: it belongs to one of the caller's projects)."""
    machines = Machine.objects.all()
    if not access.is_operator:
        machines = machines.filter(pool__in=pools_of(access.readable))
    is_own = ExpressionWrapper(Q(project_id__in=access.readable), output_field=BooleanField())
    live = (
        Phase.objects.filter(state__in=sorted(LIVE_PHASE_STATES))
        .select_related("job")
        .annotate(is_own=is_own)
    )
    return (
        machines.select_related("heartbeat", "judgement")
        .prefetch_related(Prefetch("phases", queryset=live, to_attr="live_phases"))
        .order_by("name")
    )


def health_of(machine: Machine, now: datetime) -> MachineHealth:
    """Return how a machine is, which has its heartbeat and its judgement loaded."""
    heartbeat, judgement = getattr(machine, "heartbeat", None), getattr(machine, "judgement", None)
    return machine_health(
        is_seen=heartbeat is not None,
        is_up=heartbeat is not None and heartbeat.is_heard(now),
        is_draining=machine.is_draining,
        is_cordoned=machine.is_cordoned,
        is_quarantined=judgement is not None and judgement.quarantined_at is not None,
    )


def phases_ranked(phases: Iterable[Phase]) -> list[Phase]:
    """Return live phases of a machine: the one that rolls out or trains, then its agents, the oldest first."""
    return sorted(phases, key=lambda phase: (phase.role == Role.AGENT, phase.fence))


def pools_visible(*, access: Access) -> frozenset[str]:
    """Return the pools whose machines the caller may see, with the open pool while it has no grant, even if empty."""
    if access.is_operator:
        return frozenset(Machine.objects.values_list("pool", flat=True)) | {OPEN_POOL}
    return pools_of(access.readable)


def machine_get_visible(*, access: Access, machine_id: UUID) -> Machine:
    """Return the machine. Raises ApplicationError (404)."""
    machine = machine_list_visible(access=access).filter(id=machine_id).first()
    if machine is None:
        raise not_found("machine", show_id(IdKind.MACHINE, machine_id))
    return machine


def machine_event_list(*, machine: Machine) -> QuerySet[Event]:
    """List the machine's events, newest first."""
    return Event.objects.filter(subject_type=SubjectType.MACHINE, subject_id=machine.id).order_by("-id")


def phase_get_visible(*, access: Access, phase_id: UUID) -> Phase:
    """Return the phase. Raises ApplicationError (404)."""
    phase = Phase.objects.filter(id=phase_id, project_id__in=access.readable, job__deleted_at=None).first()
    if phase is None:
        raise not_found("phase", show_id(IdKind.PHASE, phase_id))
    return phase
