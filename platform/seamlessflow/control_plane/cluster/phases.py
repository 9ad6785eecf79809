"""Moves phases from state to state.

Invariant: `Phase.state` changes in `phase_move` only, by compare-and-set along `PHASE_MOVES`, with one event per
move. A caller that knows the fence passes it: a stale fence then changes nothing.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import engines_notify, event_record, scheduler_notify
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.core.lifecycle.phases import PHASE_MOVES, PhaseState
from seamlessflow.core.types.tags import Role

# Another move may change the state between our read and our write; each round allows for one more such move.
MAX_ROUNDS = 8


def phase_move(
    *,
    phase_id: UUID,
    to: PhaseState,
    reason: str,
    author: str,
    fence: int | None = None,
    boot_id: UUID | None = None,
    fields: Mapping[str, Any] | None = None,
) -> bool:
    """Move a phase by compare-and-set, and set `fields` with it.

    Returns False if its state does not allow the move, or if the fence is stale.
    """
    fenced = Q(id=phase_id) if fence is None else Q(id=phase_id, fence=fence)
    for _ in range(MAX_ROUNDS):
        phase = (
            Phase.objects.filter(fenced)
            .only("state", "job_id", "project_id", "machine_id", "role", "gang_id")
            .first()
        )
        if phase is None or not PHASE_MOVES.allows(PhaseState(phase.state), to):
            return False
        with transaction.atomic():
            if to is PhaseState.FAILED:
                # Lock the job before the phase, as a publication does: the other order could deadlock with it.
                Job.objects.select_for_update(no_key=True).only("id").filter(id=phase.job_id).first()
            moved = {**_moved_fields(to, reason, boot_id), **(fields or {})}
            if not Phase.objects.filter(fenced, state=phase.state).update(**moved):
                continue
            _tell(phase, to=to, reason=reason, author=author)
            return True
    return False


def _moved_fields(to: PhaseState, reason: str, boot_id: UUID | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"state": to.value, "reason": reason}
    now = database_now()
    if boot_id is not None:
        fields["boot_id"] = boot_id
    match to:
        case PhaseState.ACTIVE:
            fields["active_at"] = Coalesce("active_at", now)
        case PhaseState.DRAINING:
            fields["draining_at"] = now
        case PhaseState.ENDED | PhaseState.FAILED:
            fields |= {"ended_at": now, "endpoint": ""}
    return fields


def _tell(phase: Phase, *, to: PhaseState, reason: str, author: str) -> None:
    event_record(
        kind="phase.state",
        subject_type=SubjectType.PHASE,
        subject_id=phase.id,
        job_id=phase.job_id,
        project_id=phase.project_id,
        from_state=phase.state,
        to_state=to,
        reason=reason,
        author=author,
        data={"machine_id": str(phase.machine_id), "role": phase.role},
    )
    if to is PhaseState.FAILED and not _has_failed_before(phase):
        Job.objects.filter(id=phase.job_id).update(num_failures=F("num_failures") + 1)
    if phase.role == Role.ROLLOUT:
        engines_notify(job_id=phase.job_id)
    scheduler_notify(reason=f"phase {phase.id} is {to}")


def _has_failed_before(phase: Phase) -> bool:
    """Whether another member of the gang failed before: a gang fails once. The lock on the job's row orders members."""
    fellows = Phase.objects.filter(gang_id=phase.gang_id, state=PhaseState.FAILED).exclude(id=phase.id)
    return phase.gang_id is not None and fellows.exists()
