"""Stores judgements of machines whose phases fail or roll out slowly: quarantines, and their ends.

Invariant: each change is one event with its author and reason. A quarantine takes the failures up to a fence; those are
judged, so none leads to a second one.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.errors import conflict, field_error, not_found
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record, scheduler_notify
from seamlessflow.control_plane.scheduling.models import MachineJudgement
from seamlessflow.core.scheduling.decisions import AdmitMachine, QuarantineMachine
from seamlessflow.core.types.ids import IdKind, show_id


@transaction.atomic
def machine_quarantine(decision: QuarantineMachine, *, author: str) -> bool:
    """Quarantine a machine, from now on. False if its failures were judged meanwhile, or it is gone."""
    machine = _machine_lock(decision.machine_id)
    if machine is None:
        return False
    judgement, _ = MachineJudgement.objects.get_or_create(machine=machine)
    if judgement.judged_fence >= decision.fence:
        return False
    now = database_now()
    judgement.quarantined_at, judgement.until_at = now, now + timedelta(seconds=decision.backoff_s)
    judgement.reason, judgement.num_quarantines = decision.reason, decision.num
    judgement.judged_fence, judgement.is_slow = decision.fence, decision.is_slow
    judgement.save()
    until = judgement.until_at.isoformat()
    _record(machine, "machine.quarantined", decision.reason, author, {"until_at": until, "num": decision.num})
    return True


@transaction.atomic
def machine_admit(decision: AdmitMachine, *, author: str) -> bool:
    """End the quarantine of a machine that works again. False if it is in none any more, or in a later one."""
    machine = _machine_lock(decision.machine_id)
    if machine is None:
        return False
    known = MachineJudgement.objects.filter(machine=machine, judged_fence=decision.fence)
    if not known.exists() or not _quarantine_end(machine):
        return False
    _record(machine, "machine.admitted", decision.reason, author, {})
    return True


@transaction.atomic
def machine_release(*, machine_id: UUID, reason: str, author: str) -> None:
    """End the quarantine of a machine at a person's request, and forget what failed there.

    Raises ApplicationError: 404 if there is no such machine, 409 if it is in no quarantine, 400 without a reason.
    """
    if not reason.strip():
        raise field_error("reason", "is missing; say why the machine is released")
    machine = _machine_lock(machine_id)
    if machine is None:
        raise not_found("machine", show_id(IdKind.MACHINE, machine_id))
    if not _quarantine_end(machine, judged_fence=machine.last_fence):
        raise conflict(f"{machine.name} is in no quarantine")
    _record(machine, "machine.released", reason, author, {})


def _machine_lock(machine_id: UUID) -> Machine | None:
    return Machine.objects.select_for_update(no_key=True).filter(id=machine_id).first()


def _quarantine_end(machine: Machine, **changes: int) -> bool:
    quarantined = MachineJudgement.objects.filter(machine=machine, quarantined_at__isnull=False)
    return bool(quarantined.update(quarantined_at=None, until_at=None, num_quarantines=0, **changes))


def _record(machine: Machine, kind: str, reason: str, author: str, data: dict[str, Any]) -> None:
    event_record(
        kind=kind,
        subject_type=SubjectType.MACHINE,
        subject_id=machine.id,
        reason=reason,
        author=author,
        data={"name": machine.name, "generation": machine.generation, **data},
    )
    scheduler_notify(reason=f"machine {machine.name}: {kind}")
