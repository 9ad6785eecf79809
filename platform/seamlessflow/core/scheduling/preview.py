"""What an edit of machines would do to each running thing: the scheduler itself, asked about a hypothetical snapshot.

Enters: a snapshot and edits. Leaves: the plan that the next cycle makes under the edits, the fate of each phase that
is concerned, and each job's places before and after. Invariant: `first` equals `decide` of the edited snapshot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.decisions import FailPhase, Plan
from seamlessflow.core.scheduling.edits import MachineEdit, snapshot_edited
from seamlessflow.core.scheduling.foresight import Course, foresee
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role


class Fate(StrEnum):
    """stays: as it is; drains: hands over and ends; fails: is given up, its machine being silent."""

    STAYS = "stays"
    DRAINS = "drains"
    FAILS = "fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFate:
    """`successors`: other machines that fill the role for the job afterwards. `is_by_edit`: else it ends anyway."""

    phase: PhaseView
    machine_id: UUID
    machine: str
    fate: Fate
    reason: str
    successors: tuple[str, ...]
    is_by_edit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a job comes to rest. `train` is who trains once a batch is due; `waiting` is "" unless it waits."""

    state: JobState | None  # None: it has ended
    rollout: tuple[str, ...]
    train: tuple[str, ...]
    agent: tuple[str, ...]
    waiting: str

    def of(self, role: Role) -> tuple[str, ...]:
        return {Role.ROLLOUT: self.rollout, Role.TRAIN: self.train, Role.AGENT: self.agent}[role]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutlook:
    job_id: UUID
    before: Places
    after: Places

    @property
    def is_changed(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Preview:
    """`phases`: those on edited machines, and every other that ends because of the edit."""

    first: Plan
    phases: tuple[PhaseFate, ...]
    jobs: tuple[JobOutlook, ...]


def preview(snapshot: Snapshot, edits: Mapping[UUID, MachineEdit]) -> Preview:
    edited = snapshot_edited(snapshot, edits)
    now, then = foresee(snapshot), foresee(edited)
    places_now, places_then = _places(snapshot), _places(edited)
    fates = [
        _fate(machine, machine.phase, now, then, places_then)
        for machine in snapshot.machines
        if machine.phase is not None
    ]
    return Preview(
        first=then.first,
        phases=tuple(fate for fate in fates if fate.machine_id in edits or fate.is_by_edit),
        jobs=tuple(
            JobOutlook(job_id=job.id, before=places_now[job.id], after=places_then[job.id])
            for job in snapshot.jobs
        ),
    )


def _fate(
    machine: MachineView, phase: PhaseView, now: Course, then: Course, places: Mapping[UUID, Places]
) -> PhaseFate:
    end, anyway = then.end_of(phase.id), now.end_of(phase.id)
    fate, reason = Fate.STAYS, ""
    if end is not None:
        fate, reason = (Fate.FAILS if isinstance(end, FailPhase) else Fate.DRAINS), end.reason
    elif phase.is_leaving:
        fate, reason = Fate.DRAINS, "it drains already"
    job_places = places.get(phase.job_id)
    successors = job_places.of(phase.role) if job_places is not None else ()
    return PhaseFate(
        phase=phase,
        machine_id=machine.id,
        machine=machine.name,
        fate=fate,
        reason=reason,
        successors=tuple(name for name in successors if name != machine.name),
        is_by_edit=end is not None and (anyway is None or anyway.reason != end.reason),
    )


def _places(snapshot: Snapshot) -> dict[UUID, Places]:
    """By job. Who rolls out is asked with nothing to train, who trains with a batch due: turns blur neither."""
    quiet, due = foresee(_with_demand(snapshot, is_due=False)), foresee(_with_demand(snapshot, is_due=True))
    states = {job.id: job.state for job in quiet.rest.jobs}
    return {
        job.id: Places(
            state=states.get(job.id),
            rollout=_holders(quiet, job, Role.ROLLOUT),
            train=_holders(due, job, Role.TRAIN),
            agent=_holders(quiet, job, Role.AGENT),
            waiting=quiet.waiting.get(job.id, ""),
        )
        for job in snapshot.jobs
    }


def _with_demand(snapshot: Snapshot, *, is_due: bool) -> Snapshot:
    jobs = tuple(
        replace(
            job,
            num_ready_groups=job.groups_per_batch if is_due else 0,
            num_unpublished_batches=0,
            due_age_s=inf if is_due else 0.0,  # so long that no turn waits for a second batch
        )
        for job in snapshot.jobs
    )
    machines = tuple(_turn_over(machine) for machine in snapshot.machines)
    return replace(snapshot, jobs=jobs, machines=machines)


def _turn_over(machine: MachineView) -> MachineView:
    """A turn of training that is under way is thought to have lasted: without a batch it gives the machine back."""
    phase = machine.phase
    if phase is None or phase.role is not Role.TRAIN or phase.state is not PhaseState.ACTIVE:
        return machine
    return replace(machine, phase=replace(phase, age_s=inf))


def _holders(course: Course, job: JobView, role: Role) -> tuple[str, ...]:
    held = course.rest.held_by(job.id)
    return tuple(machine.name for machine in held if machine.phase is not None and machine.phase.role is role)
