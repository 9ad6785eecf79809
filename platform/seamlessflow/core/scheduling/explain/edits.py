"""Edits of a machine's desired state as values: what a person asks for, and the resulting
machine."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from seamlessflow.core.scheduling.snapshot import MachineView, Snapshot


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


def machine_edited(machine: MachineView, edit: MachineEdit) -> MachineView:
    return replace(
        machine,
        tags=machine.tags if edit.tags is None else frozenset(edit.tags),
        is_cordoned=machine.is_cordoned if edit.cordons is None else edit.cordons,
        is_draining=machine.is_draining if edit.is_draining is None else edit.is_draining,
        pool=machine.pool if edit.pool is None else edit.pool,
        cost=machine.cost if edit.cost is None else edit.cost,
    )


def snapshot_edited(snapshot: Snapshot, edits: Mapping[UUID, MachineEdit]) -> Snapshot:
    """Return the snapshot after the edits; machines without an edit are unchanged."""
    machines = tuple(
        machine_edited(machine, edits[machine.id]) if machine.id in edits else machine
        for machine in snapshot.machines
    )
    return replace(snapshot, machines=machines)
