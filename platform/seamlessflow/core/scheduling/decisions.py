"""What a cycle decides. Each decision carries a reason for people to read; other code applies it by
compare-and-set."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import FailureCause
from seamlessflow.core.types.tags import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class NextPhase:
    """The phase that the machine should begin once its current one has ended, decided in advance: for the same job,
    or for another one (`job_id`).

    It saves the hand-over a round trip to the scheduler. Leasing it runs the same checks as any
    lease. If it no longer fits by then, it is not leased, and the next cycle decides.
    """

    role: Role
    job_id: UUID | None = None  # None: the job of the current phase
    num_batches: int | None = None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Give a free machine to a job. `num_batches`: the number of updates after which a train phase
    ends by itself, unless the next batch is ready."""

    machine_id: UUID
    machine: str
    job_id: UUID
    role: Role
    num_batches: int | None = None
    reason: str
    then: NextPhase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGang:
    """Give free machines to a job to train on all of them, or on none: as many as it needs, or more. `machines`: (id,
    name) by member; member 0 leads."""

    machines: tuple[tuple[UUID, str], ...]
    job_id: UUID
    num_batches: int | None = None
    reason: str
    then: NextPhase | None = None

    def leases(self) -> tuple[Lease, ...]:
        """Return the lease of each machine."""
        return tuple(
            Lease(
                machine_id=machine_id, machine=name, job_id=self.job_id, role=Role.TRAIN,
                num_batches=self.num_batches, reason=self.reason, then=self.then,
            )
            for machine_id, name in self.machines
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPhase:
    """Ask a live phase to hand over and end. `grace_s`: how long running work may continue (None:
    as long as it needs)."""

    phase_id: UUID
    machine: str
    reason: str
    grace_s: float | None = None
    then: NextPhase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNext:
    """Change the phase that follows a live phase of a machine."""

    phase_id: UUID
    machine: str
    then: NextPhase
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailPhase:
    """Give up a phase because its machine is silent or the phase is stuck."""

    phase_id: UUID
    machine: str
    reason: str
    cause: FailureCause = FailureCause.WORK


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


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineMachine:
    """Give a machine no work for a while, because phases fail there or roll out slowly. `fence`: that of the newest
    phase which led to this; `num`: how many quarantines there were in a row, with this one; `is_slow`: it was, in one
    of these."""

    machine_id: UUID
    machine: str
    reason: str
    num: int
    backoff_s: float
    fence: int
    is_slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitMachine:
    """End the quarantine of a machine that works again. `fence`: up to which its failures were judged; a later
    quarantine goes on."""

    machine_id: UUID
    machine: str
    reason: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseJob:
    """Ask a job to pause, because the fault seems to be its own and trying again takes machines from others."""

    job_id: UUID
    reason: str


Judgement = QuarantineMachine | AdmitMachine | PauseJob
Decision = Lease | LeaseGang | DrainPhase | SetNext | FailPhase | SetDesiredVersion | MoveJob | Judgement


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions in the order to apply them, and the reason why each unfinished job waits ("" if it
    does not wait). `stored_reasons`: those that the snapshot found stored; `state_reasons`: why a job that is queued,
    starting or running is; `differences`: how many machines jobs have
    less than their parts (`arrears`)."""

    decisions: tuple[Decision, ...]
    waiting_reasons: Mapping[UUID, str]
    stored_reasons: Mapping[UUID, str] = field(default_factory=dict)
    state_reasons: Mapping[UUID, str] = field(default_factory=dict)
    differences: Mapping[UUID, float] = field(default_factory=dict)
