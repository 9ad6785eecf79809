"""What an edit of machines would do to each phase and job: the scheduler itself decides on a hypothetical snapshot.

Takes a snapshot and edits. Returns the plan that the next cycle makes under the edits, the impact on each affected
phase, and each job's places before and after. Invariants: `first` equals `decide` of the edited snapshot; everything
else is the same at every moment of a job's cycle. To ensure this, the impact is computed on the *stable* snapshot:
starting phases have started and no batch is due, so machines that train in turns roll out. Who trains is computed on
the same stable snapshot with a batch due.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.decisions import DrainPhase, FailPhase, Plan
from seamlessflow.core.scheduling.eligibility import LEASE_FILTERS, first_rejection
from seamlessflow.core.scheduling.explain.dry_run import DryRun, dry_run
from seamlessflow.core.scheduling.explain.edits import snapshot_edited
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.desired_state import MachineEdit
from seamlessflow.core.types.tags import Role


class Impact(StrEnum):
    """stays: the phase is unchanged. drains: it hands over and ends. fails: it is given up because its machine is
    silent."""

    STAYS = "stays"
    DRAINS = "drains"
    FAILS = "fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseImpact:
    """The impact on one phase. `successors`: other machines that fill the role for the job afterwards. `is_by_edit`: if
    false, it ends anyway.

    `live`: the phase itself, if it is live right now. `is_turn`: the machine's turns to train for
    the job.
    """

    machine_id: UUID
    machine: str
    job_id: UUID
    role: Role
    live: PhaseView | None
    impact: Impact
    reason: str
    successors: tuple[str, ...]
    is_by_edit: bool
    is_turn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The stable places of a job. `train`: the machines that train once a batch is due; `waiting`
    is "" unless it waits."""

    state: JobState | None  # None: it has ended
    rollout: tuple[str, ...]
    train: tuple[str, ...]
    agent: tuple[str, ...]
    waiting: str

    def of(self, role: Role) -> tuple[str, ...]:
        return {Role.ROLLOUT: self.rollout, Role.TRAIN: self.train, Role.AGENT: self.agent}[role]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobImpact:
    job_id: UUID
    before: Places
    after: Places

    @property
    def is_changed(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of a preview. `phases`: those on edited machines, and all others that end because of
    the edit."""

    first: Plan
    phases: tuple[PhaseImpact, ...]
    jobs: tuple[JobImpact, ...]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The stable snapshot with nothing to train (`quiet`), and the one that follows when a batch is
    due."""

    quiet: DryRun
    due: DryRun

    @classmethod
    def of(cls, snapshot: Snapshot) -> "_Outcome":
        quiet = dry_run(_with_demand(snapshot, is_due=False))
        return cls(quiet, dry_run(_with_demand(quiet.final, is_due=True)))

    def places(self, job: JobView) -> Places:
        present = self.quiet.final.job(job.id)
        return Places(
            state=present.state if present is not None else None,
            rollout=_holders(self.quiet, job, Role.ROLLOUT),
            train=_holders(self.due, job, Role.TRAIN),
            agent=_holders(self.quiet, job, Role.AGENT),
            waiting=self.quiet.waiting.get(job.id, ""),
        )


def preview(snapshot: Snapshot, edits: Mapping[UUID, MachineEdit]) -> Preview:
    edited = snapshot_edited(snapshot, edits)
    now = _Outcome.of(snapshot)
    then = _Outcome.of(snapshot_edited(now.quiet.final, edits))
    places_then = {job.id: then.places(job) for job in snapshot.jobs}
    impacts = [*_impacts(snapshot, now, then, places_then), *_passing(snapshot, edited, now, places_then)]
    return Preview(
        first=decide(edited),
        phases=tuple(
            impact
            for impact in sorted(impacts, key=lambda impact: (impact.machine, impact.is_turn))
            if impact.machine_id in edits or impact.is_by_edit
        ),
        jobs=tuple(
            JobImpact(job_id=job.id, before=now.places(job), after=places_then[job.id])
            for job in snapshot.jobs
        ),
    )


def _impacts(
    snapshot: Snapshot, now: _Outcome, then: _Outcome, places: Mapping[UUID, Places]
) -> Iterator[PhaseImpact]:
    """Yield the impacts on stable phases, and on turns to train that the edit ends."""
    live = {machine.id: machine for machine in snapshot.machines}
    jobs = {job.id: job for job in snapshot.jobs}
    trained = {(machine.id, job_id) for machine, job_id in _training(now.due.final)}
    still_trained = {(machine.id, job_id) for machine, job_id in _training(then.due.final)}
    for machine in now.quiet.final.machines:
        for phase in machine.phases:
            if phase.job_id in jobs:
                impact, reason = _end_said(then.quiet.end_of(phase.id))
                yield _impact(
                    machine, phase.job_id, phase.role, places,
                    live=live[machine.id], impact=impact, reason=reason,
                )  # fmt: skip
    ends_as = {(machine.id, machine.phase.role) for machine in now.quiet.final.machines if machine.phase}
    after = {machine.id: machine for machine in then.due.final.machines}
    for machine_id, job_id in sorted(trained - still_trained, key=str):
        if (machine_id, Role.TRAIN) not in ends_as:
            machine = after[machine_id]
            reason = (
                first_rejection(LEASE_FILTERS, machine, jobs[job_id], Role.TRAIN)
                or "another machine trains instead"
            )
            yield _impact(
                machine, job_id, Role.TRAIN, places,
                live=live[machine_id], impact=Impact.DRAINS, reason=reason, is_turn=True,
            )  # fmt: skip


def _passing(
    snapshot: Snapshot, edited: Snapshot, now: _Outcome, places: Mapping[UUID, Places]
) -> Iterator[PhaseImpact]:
    """Yield the impacts on live phases without a stable place: their job ends, or their machine is silent or was
    edited."""
    placed = {(m.id, phase.job_id, phase.role) for m in now.quiet.final.machines for phase in m.phases}
    placed |= {(machine.id, job_id, Role.TRAIN) for machine, job_id in _training(now.due.final)}
    passing = [
        (machine, phase)
        for machine in snapshot.machines
        for phase in machine.phases
        if (machine.id, phase.job_id, phase.role) not in placed
    ]
    if not passing:
        return
    present, changed = dry_run(snapshot), dry_run(edited)
    for machine, phase in passing:
        end, anyway = changed.end_of(phase.id), present.end_of(phase.id)
        impact, reason = _end_said(end)
        if end is None and phase.is_leaving:
            impact, reason = Impact.DRAINS, "it is already draining"
        is_by_edit = end is not None and (anyway is None or anyway.reason != end.reason)
        shown = _impact(machine, phase.job_id, phase.role, places, live=machine, impact=impact, reason=reason)
        yield replace(shown, is_by_edit=is_by_edit)


def _end_said(end: DrainPhase | FailPhase | None) -> tuple[Impact, str]:
    if end is None:
        return Impact.STAYS, ""
    return (Impact.FAILS if isinstance(end, FailPhase) else Impact.DRAINS), end.reason


def _impact(
    machine: MachineView,
    job_id: UUID,
    role: Role,
    places: Mapping[UUID, Places],
    *,
    live: MachineView,
    impact: Impact,
    reason: str,
    is_turn: bool = False,
) -> PhaseImpact:
    """`live`: the machine as it is right now."""
    successors = places[job_id].of(role) if job_id in places else ()
    return PhaseImpact(
        machine_id=machine.id,
        machine=machine.name,
        job_id=job_id,
        role=role,
        live=live.phase_of(job_id, role),
        impact=impact,
        reason=reason,
        successors=tuple(name for name in successors if name != machine.name),
        is_by_edit=impact is not Impact.STAYS,
        is_turn=is_turn,
    )


def _training(snapshot: Snapshot) -> Iterator[tuple[MachineView, UUID]]:
    """Yield the machines that train, each with its job."""
    for machine in snapshot.machines:
        if machine.phase is not None and machine.phase.role is Role.TRAIN:
            yield machine, machine.phase.job_id


def _with_demand(snapshot: Snapshot, *, is_due: bool) -> Snapshot:
    jobs = tuple(
        replace(
            job,
            num_ready_groups=job.groups_per_batch if is_due else 0,
            num_unpublished_batches=0,
            due_age_s=inf if is_due else 0.0,  # old enough that no turn waits for a second batch
        )
        for job in snapshot.jobs
    )
    machines = tuple(_turn_over(machine) for machine in snapshot.machines)
    return replace(snapshot, jobs=jobs, machines=machines)


def _turn_over(machine: MachineView) -> MachineView:
    """Assume that a running turn to train has lasted long enough: without a batch, it gives the
    machine back."""
    phase = machine.phase
    if phase is None or phase.role is not Role.TRAIN or phase.is_leaving or not machine.is_healthy:
        return machine
    return replace(machine, phase=replace(phase, state=PhaseState.ACTIVE, age_s=inf))


def _holders(run: DryRun, job: JobView, role: Role) -> tuple[str, ...]:
    held = run.final.live_phases(job.id)
    return tuple(machine.name for machine, phase in held if phase.role is role)
