"""Properties of the scheduling decision over random snapshots, and a simulation that must
terminate."""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seamlessflow.core.lifecycle.jobs import JOB_MOVES, TERMINAL_JOB_STATES, DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import PHASE_MOVES, PhaseState
from seamlessflow.core.scheduling.activity import is_running
from seamlessflow.core.scheduling.blame.judging import job_paused, machine_judged
from seamlessflow.core.scheduling.decisions import (
    AdmitMachine,
    Decision,
    DrainPhase,
    FailPhase,
    Lease,
    LeaseGang,
    MoveJob,
    PauseJob,
    Plan,
    QuarantineMachine,
    SetDesiredVersion,
)
from seamlessflow.core.scheduling.eligibility import lease_rejection, may_be_tried
from seamlessflow.core.scheduling.explain.edits import machine_edited
from seamlessflow.core.scheduling.explain.preview import preview
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import (
    FailureView,
    GangView,
    JobView,
    MachineView,
    PhaseView,
    Snapshot,
)
from seamlessflow.core.types.desired_state import MachineEdit
from seamlessflow.core.types.tags import Role
from tests.fixtures.snapshots import JOBS, snapshots


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_same_snapshot_in_any_order_gives_the_same_plan(
    snapshot: Snapshot, chance: random.Random
) -> None:
    machines, jobs, failures = list(snapshot.machines), list(snapshot.jobs), list(snapshot.failures)
    for rows in (machines, jobs, failures):
        chance.shuffle(rows)
    shuffled = Snapshot(machines=tuple(machines), jobs=tuple(jobs), failures=tuple(failures))
    assert decide(shuffled) == decide(snapshot)


def singly(plan: Plan) -> Iterator[Decision]:
    """Return the decisions with the leases of a gang one by one."""
    for decision in plan.decisions:
        if isinstance(decision, LeaseGang):
            yield from decision.leases()
        else:
            yield decision


@given(snapshots())
def test_a_plan_never_breaks_a_rule(snapshot: Snapshot) -> None:
    plan = decide(snapshot)
    machines = {m.id: m for m in snapshot.machines}
    live = {phase.id: phase for m in snapshot.machines for phase in m.phases}
    jobs = {job.id: job for job in snapshot.jobs}
    leased, moved, ended = [], [], []
    num_agents = {m.id: len(m.agents) for m in snapshot.machines}
    for decision in plan.decisions:
        if isinstance(decision, LeaseGang):
            job = jobs[decision.job_id]
            least = job.num_train_machines
            assert least <= len(decision.machines) <= least + job.extra_train_machines
            assert job.trains_in_gangs
            assert not any(phase.role is Role.TRAIN for _, phase in snapshot.live_phases(job.id))
    for decision in singly(plan):
        assert decision.reason
        match decision:
            case Lease():
                machine = machines[decision.machine_id]
                is_agent = decision.role is Role.AGENT
                leased.append((machine.id, decision.job_id if is_agent else None))
                job, admitted = jobs[decision.job_id], replace(machine, quarantine=None)
                going_on = replace(job, state=JobState.RUNNING)
                assert lease_rejection(admitted, going_on, decision.role) is None
                num_agents[machine.id] += is_agent
                assert not is_agent or num_agents[machine.id] <= machine.agent_slots
                assert machine.is_healthy
                assert not (machine.is_cordoned)
                assert not (machine.is_draining)
                assert may_be_tried(machine, decision.role) or any(
                    isinstance(d, AdmitMachine) and d.machine_id == machine.id for d in plan.decisions
                )
                assert not any(
                    isinstance(d, QuarantineMachine) and d.machine_id == machine.id for d in plan.decisions
                )
                assert jobs[decision.job_id].tags_of(decision.role) <= machine.tags
            case MoveJob():
                moved.append(decision.job_id)
                assert JOB_MOVES.allows(jobs[decision.job_id].state, decision.to_state)
            case DrainPhase():
                ended.append(decision.phase_id)
                assert PHASE_MOVES.allows(live[decision.phase_id].state, PhaseState.DRAINING)
            case FailPhase():
                ended.append(decision.phase_id)
            case SetDesiredVersion():
                assert decision.version > live[decision.phase_id].desired_version
    for once in (leased, moved, ended):
        assert len(once) == len(set(once))


@given(snapshots())
def test_every_job_that_does_not_progress_has_a_reason(snapshot: Snapshot) -> None:
    plan = decide(snapshot)
    for job in snapshot.jobs:
        active = {phase.role for _, phase in snapshot.live_phases(job.id) if phase.state is PhaseState.ACTIVE}
        needed = {Role.ROLLOUT, Role.AGENT} if job.has_agents else {Role.ROLLOUT}
        needed = needed if job.has_rollout else {Role.TRAIN}
        assert plan.waiting_reasons[job.id] or needed <= active


@given(snapshots())
def test_a_job_on_recorded_trajectories_is_leased_for_training_only(snapshot: Snapshot) -> None:
    recorded = {job.id for job in snapshot.jobs if not job.has_rollout}
    leases = [d for d in decide(snapshot).decisions if isinstance(d, Lease) and d.job_id in recorded]
    assert {lease.role for lease in leases} <= {Role.TRAIN}
    assert all(lease.num_batches is None for lease in leases)


@given(snapshots())
def test_a_machine_on_which_training_is_due_is_not_leased_for_rollout(snapshot: Snapshot) -> None:
    plan = decide(snapshot)
    for lease in (d for d in plan.decisions if isinstance(d, Lease) and d.role is Role.ROLLOUT):
        job = next(job for job in snapshot.jobs if job.id == lease.job_id)
        if not is_running(job, snapshot.live_phases(job.id)):
            continue  # it needs an engine to be up, and trains after that
        trains = any(phase.role is Role.TRAIN for _, phase in snapshot.live_phases(job.id))
        promised = any(
            isinstance(d, Lease) and d.role is Role.TRAIN and d.job_id == job.id for d in singly(plan)
        )
        is_short = job.trains_in_gangs and "train together" in plan.waiting_reasons[job.id]
        drained = any(
            isinstance(d, DrainPhase) and "switches to training" in d.reason for d in plan.decisions
        )
        able = next(m for m in snapshot.machines if m.id == lease.machine_id).tags >= job.tags_of(Role.TRAIN)
        waits = any(
            phase.is_leaving and phase.role is not Role.AGENT for _, phase in snapshot.live_phases(job.id)
        )
        assert not (able and job.num_due_batches) or trains or promised or drained or waits or is_short


@dataclass
class World:
    """A tiny cluster: supervisors obey, engines produce groups, trainers publish, and chance
    interferes for a while."""

    chance: random.Random
    machines: dict[str, MachineView]
    jobs: dict[UUID, JobView]
    budgets: dict[UUID, int | None] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    failures: list[FailureView] = field(default_factory=list)
    num_phases: int = 0
    gang_sizes: dict[UUID, int] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        unfinished = tuple(job for job in self.jobs.values() if job.state not in TERMINAL_JOB_STATES)
        failures = tuple(self.failures)
        return Snapshot(machines=tuple(self.machines.values()), jobs=unfinished, failures=failures)

    def cycle(self) -> None:
        plan = decide(self.snapshot())
        assert decide(self.snapshot()) == plan
        self._check(plan)
        for decision in plan.decisions:
            match decision:
                case Lease():
                    self._lease(decision)
                case LeaseGang():
                    gang_id = UUID(int=self.num_phases + 50_000)
                    self.gang_sizes[gang_id] = len(decision.machines)
                    for member, lease in enumerate(decision.leases()):
                        self._lease(lease, GangView(id=gang_id, member=member))
                case DrainPhase():
                    self._set_phase(decision.phase_id, state=PhaseState.DRAINING, age_s=0.0)
                case FailPhase():
                    self._end(decision.phase_id, has_failed=True)
                case SetDesiredVersion():
                    self._set_phase(decision.phase_id, desired_version=decision.version)
                case MoveJob():
                    job = self.jobs[decision.job_id]
                    JOB_MOVES.check(job.state, decision.to_state)
                    self.jobs[job.id] = replace(job, state=decision.to_state)
                case QuarantineMachine() | AdmitMachine():
                    machine = next(m for m in self.machines.values() if m.id == decision.machine_id)
                    self.machines[machine.name] = machine_judged(machine, decision)
                case PauseJob():
                    self.jobs[decision.job_id] = job_paused(self.jobs[decision.job_id], decision)

    def _check(self, plan: Plan) -> None:
        """Whatever was edited or failed, no machine works against its tags, and a waiting job says
        why it waits."""
        leaving = {d.phase_id for d in plan.decisions if isinstance(d, DrainPhase | FailPhase)}
        for lease in (d for d in singly(plan) if isinstance(d, Lease)):
            machine = self.machines[lease.machine]
            assert self.jobs[lease.job_id].tags_of(lease.role) <= machine.tags
            assert not machine.is_cordoned
        for machine in self.machines.values():
            for phase in machine.phases:
                if not phase.is_leaving and phase.role.value not in machine.tags:
                    assert phase.id in leaving
        for job_id, reason in plan.waiting_reasons.items():
            held = [phase for m in self.machines.values() for phase in m.phases if phase.job_id == job_id]
            active = {phase.role for phase in held if phase.state is PhaseState.ACTIVE}
            assert reason or {Role.ROLLOUT, Role.AGENT} <= active

    def edit(self, name: str, edit: MachineEdit) -> None:
        """Edit as a person does, often after a look at what would happen, which is then what
        happens."""
        machine = self.machines[name]
        told = preview(self.snapshot(), {machine.id: edit}) if self.chance.random() < 0.2 else None
        self.machines[name] = machine_edited(machine, edit)
        assert told is None or told.first == decide(self.snapshot())

    def check_gangs(self) -> None:
        """A gang has its size while it trains, and what remains of a gang is ending."""
        training: dict[UUID, list[PhaseView]] = defaultdict(list)
        for machine in self.machines.values():
            if machine.phase is not None and machine.phase.gang is not None:
                training[machine.phase.job_id].append(machine.phase)
        for job_id, phases in training.items():
            gangs = {phase.gang.id: phase.gang for phase in phases if phase.gang is not None}
            assert len(gangs) == 1
            (gang,) = gangs.values()
            is_whole = len(phases) == self.gang_sizes[gang.id] >= self.jobs[job_id].num_train_machines
            assert is_whole or gang.failure or gang.has_ended

    def _lease(self, lease: Lease, gang: GangView | None = None) -> None:
        machine = self.machines[lease.machine]
        assert lease_rejection(machine, self.jobs[lease.job_id], lease.role) is None
        self.num_phases += 1
        fence = self.fences[lease.machine] = self.fences.get(lease.machine, 0) + 1
        phase = PhaseView(
            id=UUID(int=self.num_phases + 10_000),
            job_id=lease.job_id,
            role=lease.role,
            state=PhaseState.LEASED,
            fence=fence,
            desired_version=self.jobs[lease.job_id].latest_version,
            gang=gang,
        )
        self.budgets[phase.id] = lease.num_batches
        self.machines[lease.machine] = machine.with_phase(phase)

    def _place(self, phase_id: UUID) -> tuple[MachineView, PhaseView]:
        return next((m, one) for m in self.machines.values() for one in m.phases if one.id == phase_id)

    def _set_phase(self, phase_id: UUID, **changes: object) -> None:
        machine, phase = self._place(phase_id)
        self.machines[machine.name] = machine.with_phase(replace(phase, **changes))  # type: ignore[arg-type]

    def _end(self, phase_id: UUID, *, has_failed: bool = False) -> None:
        machine, phase = self._place(phase_id)
        job = self.jobs[phase.job_id]
        self.machines[machine.name] = machine.without_phase(phase_id)
        gang = phase.gang
        for fellow in [m.phase for m in self.machines.values() if m.phase is not None]:
            theirs = fellow.gang
            if gang is not None and theirs is not None and theirs.id == gang.id:
                failure = theirs.failure or ("it failed" if has_failed else "")
                has_ended = theirs.has_ended or not has_failed
                self._set_phase(fellow.id, gang=replace(theirs, failure=failure, has_ended=has_ended))
        is_counted = has_failed and not (gang is not None and gang.failure)  # a gang fails once
        self.jobs[job.id] = replace(job, num_failures=job.num_failures + is_counted)
        if is_counted and machine.is_healthy:
            self.failures.append(
                FailureView(machine_id=machine.id, job_id=job.id, role=phase.role, fence=phase.fence)
            )
        elif not has_failed and machine.quarantine is not None and phase.fence > machine.judged_fence:
            proven = replace(machine.quarantine, is_proven=True)
            self.machines[machine.name] = replace(self.machines[machine.name], quarantine=proven)

    def _pass_time(self, by_s: float) -> None:
        self.failures = [replace(failure, age_s=failure.age_s + by_s) for failure in self.failures]
        for name, machine in self.machines.items():
            if machine.quarantine is not None:
                aged = replace(machine.quarantine, age_s=machine.quarantine.age_s + by_s)
                self.machines[name] = replace(machine, quarantine=aged)
        for job in self.jobs.values():
            self.jobs[job.id] = replace(
                job, published_s=job.published_s + by_s, resumed_s=job.resumed_s + by_s
            )

    def resume(self) -> None:
        """A person lets the jobs that the platform paused go on."""
        for job in self.jobs.values():
            if job.desired is DesiredJobState.PAUSE and job.pause_reason:
                self.jobs[job.id] = replace(job, desired=DesiredJobState.RUN, pause_reason="", resumed_s=0.0)

    def work(self) -> None:
        """Every healthy machine does one step of what it was told."""
        self._pass_time(10.0)
        for name, machine in list(self.machines.items()):
            if not machine.is_healthy:
                self.machines[name] = replace(machine, unheard_s=machine.unheard_s + 10.0)
            for phase in machine.phases:
                self._work(machine, phase)

    def _work(self, machine: MachineView, phase: PhaseView) -> None:
        phase = self._place(phase.id)[1]
        self._set_phase(phase.id, age_s=phase.age_s + 10.0)
        if not machine.is_healthy:
            return
        if phase.state is PhaseState.LEASED:
            self._set_phase(phase.id, state=PhaseState.STARTING)
        elif phase.state is PhaseState.STARTING:
            self._set_phase(phase.id, state=PhaseState.ACTIVE, age_s=0.0)
        elif phase.state is PhaseState.DRAINING:
            self._end(phase.id)
        elif phase.role is Role.ROLLOUT and self._agents_live(phase.job_id):
            job = self.jobs[phase.job_id]
            self.jobs[job.id] = replace(job, num_ready_groups=job.num_ready_groups + 2)
        elif phase.role is Role.TRAIN and (phase.gang is None or phase.gang.member == 0):
            self._train(phase)
        elif phase.gang is not None and phase.gang.has_ended:
            self._end(phase.id)  # released by its leader

    def _agents_live(self, job_id: UUID) -> bool:
        return any(m.phase_of(job_id, Role.AGENT) is not None for m in self.machines.values())

    def _train(self, phase: PhaseView) -> None:
        job = self.jobs[phase.job_id]
        if job.num_unpublished_batches:
            budget = self.budgets[phase.id]
            number = job.published_batch + 1
            self.jobs[job.id] = replace(
                job,
                published_batch=number,
                latest_version=number,
                num_unpublished_batches=0,
                num_failures=0,
                published_s=0.0,
            )
            self.budgets[phase.id] = None if budget is None else budget - 1
            if self.budgets[phase.id] == 0:
                self._end(phase.id)
        elif job.num_ready_groups >= job.groups_per_batch:
            left = job.num_ready_groups - job.groups_per_batch
            self.jobs[job.id] = replace(job, num_ready_groups=left, num_unpublished_batches=1)

    def disturb(self) -> None:
        name = self.chance.choice(sorted(self.machines))
        machine = self.machines[name]
        event = self.chance.randrange(6)
        if event == 0:
            self.machines[name] = replace(machine, is_healthy=False, unheard_s=20.0)
        elif event == 1 and not machine.is_healthy:
            self._return(name)
        elif event == 2:
            tags = self.chance.sample(["rollout", "train", "agent"], self.chance.randint(0, 3))
            self.edit(name, MachineEdit(tags=tags))
        elif event == 3:
            self.edit(name, MachineEdit(is_cordoned=not machine.is_cordoned))
        elif event == 4:
            self.edit(name, MachineEdit(is_draining=not machine.is_draining))
        elif event == 5 and machine.phases and self.chance.random() < 0.3:
            self._end(self.chance.choice(machine.phases).id, has_failed=True)

    def _return(self, name: str) -> None:
        """A machine returns with a new boot, and the phases of the old one have failed."""
        for phase in self.machines[name].phases:
            self._end(phase.id, has_failed=True)
        self.machines[name] = replace(self.machines[name], is_healthy=True, unheard_s=0.0)

    def heal(self, tags: dict[str, frozenset[str]]) -> None:
        for name, wanted in tags.items():
            self._return(name)
            machine = self.machines[name]
            self.machines[name] = replace(machine, tags=wanted, is_cordoned=False, is_draining=False)


GANG_LAYOUTS = [
    {"alpha": {"rollout", "train"}, "beta": {"rollout", "train"}, "gamma": {"agent"}},
    {"alpha": {"train"}, "beta": {"train"}, "delta": {"rollout"}, "gamma": {"agent"}},
    {"alpha": {"train"}, "beta": {"rollout", "train"}, "delta": {"rollout"}, "gamma": {"agent"}},
    {
        **{name: {"rollout", "train"} for name in ("alpha", "beta", "delta", "epsilon")},
        **{name: {"agent"} for name in ("gamma", "zeta")},
    },
]
LAYOUTS = [
    {"alpha": {"rollout", "train"}, "beta": {"rollout"}, "gamma": {"agent"}},
    {"alpha": {"rollout", "train"}, "gamma": {"agent"}},
    {"alpha": {"train"}, "beta": {"rollout"}, "gamma": {"agent"}},
    {"alpha": {"rollout", "train"}, "gamma": {"agent", "rollout"}},
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    agent_slots=st.sampled_from([1, 2]),
    layout=st.sampled_from(LAYOUTS) | st.sampled_from(GANG_LAYOUTS),
    num_disturbances=st.integers(0, 60),
    cancel_at=st.none() | st.integers(0, 80),
    pause_at=st.none() | st.integers(0, 40),
)
def test_whatever_happens_every_job_reaches_one_end(
    seed: int,
    agent_slots: int,
    layout: dict[str, set[str]],
    num_disturbances: int,
    cancel_at: int | None,
    pause_at: int | None,
) -> None:
    chance = random.Random(seed)
    tags = {name: frozenset(wanted) for name, wanted in layout.items()}
    machines = {
        name: MachineView(id=UUID(int=n), name=name, tags=tags[name], agent_slots=agent_slots)
        for n, name in enumerate(sorted(tags), 1)
    }
    jobs = {
        job_id: JobView(
            id=job_id,
            order=n,
            state=JobState.QUEUED,
            groups_per_batch=4,
            num_updates=3,
            num_train_machines=2 if layout in GANG_LAYOUTS else 1,
            extra_train_machines=seed % 3,
        )
        for n, job_id in enumerate(JOBS[:2])
    }
    world = World(chance=chance, machines=machines, jobs=jobs)
    first = JOBS[0]
    for step in range(400):
        if step < num_disturbances:
            world.disturb()
        if step == num_disturbances:
            world.heal(tags)
        if step > num_disturbances:
            world.resume()
        if step == pause_at:
            world.jobs[first] = replace(world.jobs[first], desired=DesiredJobState.PAUSE)
        if (
            pause_at is not None
            and step == pause_at + 30
            and world.jobs[first].desired is DesiredJobState.PAUSE
        ):
            world.jobs[first] = replace(world.jobs[first], desired=DesiredJobState.RUN)
        if step == cancel_at:
            world.jobs[first] = replace(world.jobs[first], desired=DesiredJobState.CANCEL)
        world.cycle()
        world.check_gangs()
        world.work()
        if all(job.state in TERMINAL_JOB_STATES for job in world.jobs.values()):
            break
    states = [job.state for job in world.jobs.values()]
    assert set(states) <= TERMINAL_JOB_STATES, states
    for _ in range(5):
        world.cycle()
        world.work()
    assert not any(machine.phases for machine in world.machines.values())
    for job in world.jobs.values():
        if job.state is JobState.COMPLETED:
            assert job.published_batch == job.num_updates
