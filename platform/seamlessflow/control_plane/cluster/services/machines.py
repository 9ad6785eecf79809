"""Edits machines' desired state: registers, tags, cordons and drains them.

Invariants: one host speaks for a machine; each edit bumps `generation` (the ETag), carries a reason and an author, and
leaves an event.
"""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Max

from seamlessflow.control_plane.accounts.models import Token
from seamlessflow.control_plane.accounts.selectors.secrets import secret_digest
from seamlessflow.control_plane.accounts.services.people import machine_token_create, token_revoke
from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.errors import ApplicationError, conflict, field_error, not_found, stale
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record, scheduler_notify
from seamlessflow.core.scheduling.heartbeats import HEARTBEAT_LIMIT_S
from seamlessflow.core.types.desired_state import InvalidEdit, MachineEdit
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.limits import MachineName, limits_of


@transaction.atomic
def machine_register(
    *, name: str, tags: Collection[str] | None, author: str, is_rotating: bool = False
) -> tuple[Machine, str]:
    """Create or keep the machine, and return it with the secret of a fresh token. Rotating ends earlier tokens."""
    machine, is_new = _machine_obtain(name, tags or [], author)
    if not is_new and tags is not None and set(tags) != set(machine.tags):
        machine = machine_edit(
            machine_id=machine.id, edit=MachineEdit(tags=tags), reason="registered again", author=author
        )
    if is_rotating:
        _tokens_end(machine, author)
    _, secret = machine_token_create(machine=machine, author=author)
    return machine, secret


@transaction.atomic
def machine_join(*, name: str, tags: Collection[str], stored_token: str = "") -> tuple[Machine, str]:
    """Register a host at its own request, again after each restart. Tags that a person gave it in the meantime stay.

    Earlier tokens end, so that only one host speaks for the machine: the one that has its newest token or, once the
    machine counts as lost, the first to come. Raises ApplicationError: 409 while another host still reports.
    """
    author = f"machine:{name}"
    machine, is_new = _machine_obtain(name, tags, author)
    if not is_new:
        Machine.objects.select_for_update(no_key=True).get(id=machine.id)
        _owner_check(machine, stored_token)
    _tokens_end(machine, author)
    _, secret = machine_token_create(machine=machine, author=author)
    return machine, secret


def _tokens_end(machine: Machine, author: str) -> None:
    for token in Token.objects.filter(machine=machine, revoked_at=None):
        token_revoke(token=token, author=author)


def _machine_obtain(name: str, tags: Collection[str], author: str) -> tuple[Machine, bool]:
    """Return the machine of this name, and whether it is new."""
    if refusal := limits_of(MachineName).refusal(name):
        raise field_error("name", refusal)
    machine, is_new = Machine.objects.get_or_create(name=name, defaults=edit_check(MachineEdit(tags=tags)))
    if is_new:
        _edit_record(machine, kind="machine.registered", reason="registered", author=author)
    return machine, is_new


def _owner_check(machine: Machine, stored_token: str) -> None:
    """Raise ApplicationError unless the host is this machine, or no host is this machine any more."""
    tokens = Token.objects.filter(machine=machine, revoked_at=None)
    if stored_token and tokens.filter(digest=secret_digest(stored_token)).exists():
        return
    heartbeat = MachineHeartbeat.objects.filter(machine=machine).first()
    reported_at = None if heartbeat is None else heartbeat.received_at
    limit_s = HEARTBEAT_LIMIT_S if heartbeat is None else heartbeat.limit.total_seconds()
    # A host that joined a moment ago has not sent a heartbeat yet.
    newest = max(
        filter(None, [reported_at, tokens.aggregate(newest=Max("created_at"))["newest"]]), default=None
    )
    if newest is None:
        return
    left_s = limit_s - (database_now() - newest).total_seconds()
    if left_s > 0:
        raise conflict(
            f"name: another host uses {machine.name!r} and sent its last heartbeat "
            f"{limit_s - left_s:.0f} s ago. Stop that host, or choose another name. If it is gone, the name "
            f"is free in {left_s:.0f} s"
        )


def machine_edit(
    *, machine_id: UUID, edit: MachineEdit, reason: str, author: str, generation: int | None = None
) -> Machine:
    """Apply an edit. One that changes nothing neither bumps the generation nor records an event.

    Raises ApplicationError: 412 when `generation` is given and stale, 400 for a refused value or no reason.
    """
    if not reason.strip():
        raise field_error("reason", "is missing; say why the machine is edited")
    wanted = edit_check(edit)
    with transaction.atomic():
        machine = Machine.objects.select_for_update(no_key=True).filter(id=machine_id).first()
        if machine is None:
            raise not_found("machine", show_id(IdKind.MACHINE, machine_id))
        if generation is not None and machine.generation != generation:
            raise stale("machine", machine.generation, generation)
        changes = {field: value for field, value in wanted.items() if value != getattr(machine, field)}
        if changes:
            _apply(machine, changes, reason=reason, author=author)
    return machine


@transaction.atomic
def machines_edit(
    *, edits: Mapping[UUID, MachineEdit], generations: Mapping[UUID, int], reason: str, author: str
) -> list[Machine]:
    """Apply several edits, all or none. Raises ApplicationError as `machine_edit` does, naming the machine."""
    edited = []
    for machine_id in sorted(edits):  # one order of locks for all callers
        try:
            machine = machine_edit(
                machine_id=machine_id,
                edit=edits[machine_id],
                reason=reason,
                author=author,
                generation=generations[machine_id],
            )
        except ApplicationError as error:
            name = Machine.objects.filter(id=machine_id).values_list("name", flat=True).first()
            raise ApplicationError(
                f"{name or machine_id}: {error.detail}", status=error.status, faults=error.faults
            ) from error
        edited.append(machine)
    return edited


def _apply(machine: Machine, changes: dict[str, object], *, reason: str, author: str) -> None:
    before = {field: getattr(machine, field) for field in changes}
    for field, value in changes.items():
        setattr(machine, field, value)
    machine.generation += 1
    machine.reason, machine.edited_by = reason, author
    machine.save(update_fields=[*changes, "generation", "reason", "edited_by"])
    _edit_record(machine, kind="machine.edited", reason=reason, author=author, before=before, after=changes)


def _edit_record(
    machine: Machine,
    *,
    kind: str,
    reason: str,
    author: str,
    before: dict[str, object] | None = None,
    after: dict[str, object] | None = None,
) -> None:
    event_record(
        kind=kind,
        subject_type=SubjectType.MACHINE,
        subject_id=machine.id,
        reason=reason,
        author=author,
        data={
            "name": machine.name,
            "generation": machine.generation,
            "before": before or {},
            "after": after or {"tags": machine.tags},
        },
    )
    scheduler_notify(reason=f"machine {machine.name}: {kind}")


def edit_check(edit: MachineEdit) -> dict[str, Any]:
    """Return the fields that the edit sets, as rows keep them. Raises ApplicationError (400) naming the wrong one."""
    try:
        changes = edit.changes()
    except InvalidEdit as error:
        raise field_error(error.field, str(error)) from error
    return changes | ({"tags": sorted(changes["tags"])} if "tags" in changes else {})
