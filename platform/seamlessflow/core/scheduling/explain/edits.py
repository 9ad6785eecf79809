"""Machines and snapshots after edits of machines' desired state."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from seamlessflow.core.scheduling.snapshot import MachineView, Snapshot
from seamlessflow.core.types.desired_state import MachineEdit


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
