"""What a cycle decides. Each decision carries a reason for people; applying one is a compare-and-set elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.types.tags import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class NextPhase:
    """What the machine should do for the same job as soon as the present phase has ended, decided ahead.

    It spares the hand-over a round trip to the scheduler. Leasing it checks everything that any lease does, so what
    no longer fits by then is not leased, and the next cycle decides.
    """

    role: Role
    num_batches: int | None = None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Give a free machine to a job. `num_batches`: after so many updates a train phase ends by itself, unless the next
    batch is there."""

    machine_id: UUID
    machine: str
    job_id: UUID
    role: Role
    num_batches: int | None = None
    reason: str
    then: NextPhase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGang:
    """Give free machines to a job to train on all of them, or on none. `machines`: (id, name) by member; 0 leads."""

    machines: tuple[tuple[UUID, str], ...]
    job_id: UUID
    num_batches: int | None = None
    reason: str
    then: NextPhase | None = None

    def leases(self) -> tuple[Lease, ...]:
        """What each machine is given."""
        return tuple(
            Lease(
                machine_id=machine_id, machine=name, job_id=self.job_id, role=Role.TRAIN,
                num_batches=self.num_batches, reason=self.reason, then=self.then,
            )
            for machine_id, name in self.machines
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPhase:
    """Ask a live phase to hand over and end. `grace_s`: what is under way may go on for so long (None: as it needs)."""

    phase_id: UUID
    machine: str
    reason: str
    grace_s: float | None = None
    then: NextPhase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailPhase:
    """Give a phase up: its machine is silent, or it is stuck."""

    phase_id: UUID
    machine: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDesiredVersion:
    phase_id: UUID
    machine: str
    version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveJob:
    job_id: UUID
    to_state: JobState
    reason: str


Decision = Lease | LeaseGang | DrainPhase | FailPhase | SetDesiredVersion | MoveJob


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions in the order to apply them, and for every unfinished job why it waits ("" where it does not)."""

    decisions: tuple[Decision, ...]
    waiting_reasons: Mapping[UUID, str]
