"""What becomes of devices that their machines cordon: events of it, and releases by people.

A machine cordons its devices itself and reports why. A person's release is kept until the machine has reported without
that problem. Invariant: each device that is cordoned, released or used again leaves one event with author and reason.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat
from seamlessflow.control_plane.common.errors import conflict, field_error, not_found
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record, scheduler_notify
from seamlessflow.core.types.ids import IdKind, show_id


def device_problems(capabilities: Mapping[str, Any]) -> dict[str, str]:
    """Return why devices are cordoned, by id, as a machine reported it."""
    return dict(capabilities.get("device_problems", {}))


def devices_note(
    *,
    machine_id: UUID,
    before: Mapping[str, str],
    after: Mapping[str, str],
    released: Mapping[str, str],
    author: str,
) -> None:
    """Record what a machine newly reports of its devices, and forget releases that have done their work.

    `before`, `after`: why devices are cordoned, by id; `released`: the stored releases. The machine's row is locked.
    """
    cordoned = {id: problem for id, problem in after.items() if before.get(id) != problem}
    for id, problem in cordoned.items():
        _record(machine_id, "machine.device_cordoned", id, problem, author)
    for id in before.keys() - after.keys():
        _record(machine_id, "machine.device_admitted", id, "its machine finds it well", author)
    left = {id: problem for id, problem in released.items() if after.get(id) == problem}
    if left != released:
        MachineHeartbeat.objects.filter(machine_id=machine_id).update(released_devices=left)
    if cordoned or before.keys() - after.keys():
        scheduler_notify(reason="devices of a machine were cordoned or admitted")


@transaction.atomic
def device_release(*, machine_id: UUID, device_id: str, reason: str, author: str) -> None:
    """Let a machine use a cordoned device again, if it finds the device well.

    Raises ApplicationError: 404 if there is no such machine, 409 if the device is not cordoned, 400 without a reason.
    """
    if not reason.strip():
        raise field_error("reason", "is missing; say why the device is released")
    if not Machine.objects.filter(id=machine_id).exists():
        raise not_found("machine", show_id(IdKind.MACHINE, machine_id))
    heartbeat = MachineHeartbeat.objects.select_for_update(of=("self",)).filter(machine_id=machine_id).first()
    problems = {} if heartbeat is None else device_problems(heartbeat.capabilities)
    if heartbeat is None or device_id not in problems:
        cordoned = ", ".join(sorted(problems)) or "none"
        raise conflict(
            f"the device {device_id} is not cordoned; cordoned devices of this machine: {cordoned}"
        )
    heartbeat.released_devices = {**heartbeat.released_devices, device_id: problems[device_id]}
    heartbeat.save(update_fields=["released_devices"])
    _record(machine_id, "machine.device_released", device_id, reason, author)


def _record(machine_id: UUID, kind: str, device_id: str, reason: str, author: str) -> None:
    event_record(
        kind=kind,
        subject_type=SubjectType.MACHINE,
        subject_id=machine_id,
        reason=reason,
        author=author,
        data={"device": device_id},
    )
