"""Edits of a machine's desired state as values: what a person asks for, and the resulting
machine."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from uuid import UUID

from seamlessflow.core.scheduling.snapshot import MachineView, Snapshot
from seamlessflow.core.types.machine_costs import InvalidCost, parse_cost
from seamlessflow.core.types.pools import InvalidPool, parse_pool
from seamlessflow.core.types.tags import InvalidTag, parse_tags

_CHECKS: Mapping[str, Callable[[Any], object]] = {"tags": parse_tags, "pool": parse_pool, "cost": parse_cost}


class InvalidEdit(ValueError):
    """The value of one field is refused; the message names the accepted ones."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


@dataclass(frozen=True, slots=True)
class MachineEdit:
    """An edit of a machine; None leaves a field unchanged."""

    tags: Collection[str] | None = None
    is_cordoned: bool | None = None
    is_draining: bool | None = None
    pool: str | None = None
    cost: float | None = None

    @property
    def cordons(self) -> bool | None:
        """Whether the edit cordons. Draining does, because a machine that is being drained must get no new work."""
        return True if self.is_draining else self.is_cordoned

    def changes(self) -> dict[str, Any]:
        """The fields that the edit sets. Raises InvalidEdit for the first value that is refused."""
        wanted = {field.name: getattr(self, field.name) for field in fields(self)} | {
            "is_cordoned": self.cordons
        }
        return {name: _checked(name, value) for name, value in wanted.items() if value is not None}


def _checked(name: str, value: Any) -> Any:
    try:
        return _CHECKS[name](value) if name in _CHECKS else value
    except (InvalidTag, InvalidPool, InvalidCost) as error:
        raise InvalidEdit(name, str(error)) from error


def machine_edited(machine: MachineView, edit: MachineEdit) -> MachineView:
    """Return the machine after the edit. Raises InvalidEdit."""
    return replace(machine, **edit.changes())


def snapshot_edited(snapshot: Snapshot, edits: Mapping[UUID, MachineEdit]) -> Snapshot:
    """Return the snapshot after the edits; machines without an edit are unchanged."""
    machines = tuple(
        machine_edited(machine, edits[machine.id]) if machine.id in edits else machine
        for machine in snapshot.machines
    )
    return replace(snapshot, machines=machines)
