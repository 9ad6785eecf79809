"""Soft preferences among machines that pass the filters: the smallest key wins, names break ties.

Both suit small clusters: agents go where nothing else could run, and training goes where it
interrupts no generation.
"""

from uuid import UUID

from seamlessflow.core.scheduling.snapshot import MachineView
from seamlessflow.core.types.tags import Role

Key = tuple[bool, int, str]


def agent_key(machine: MachineView, job_id: UUID) -> Key:
    """Prefer the machine where the agents already run, then the one with the fewest other roles."""
    others = len(machine.tags & {Role.ROLLOUT.value, Role.TRAIN.value})
    return (not _runs(machine, job_id, Role.AGENT), others, machine.name)


def train_key(machine: MachineView, job_id: UUID) -> Key:
    """Prefer the machine where training already runs, then a dedicated one, then always the same
    {rollout, train} machine."""
    return (not _runs(machine, job_id, Role.TRAIN), int(not is_dedicated(machine)), machine.name)


def is_dedicated(machine: MachineView) -> bool:
    """Whether the machine only trains, so that a long train phase takes nothing away from
    generation."""
    return Role.ROLLOUT.value not in machine.tags


def _runs(machine: MachineView, job_id: UUID, role: Role) -> bool:
    phase = machine.phase_of(job_id)
    return phase is not None and phase.role is role and not phase.is_leaving
