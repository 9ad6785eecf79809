"""A fleet that several jobs share: what went wrong before, by name, and what holds once it has come to rest."""

from dataclasses import replace
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seamlessflow.core.algorithms.staleness_bound import StalenessBound
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.decisions import DrainPhase, Lease, NextPhase, SetNext
from seamlessflow.core.scheduling.explain.dry_run import dry_run
from seamlessflow.core.scheduling.plan import FleetPlan, fleet_plan
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role

A, B, C, D = (UUID(int=number) for number in (1, 2, 3, 4))
BOTH = frozenset({"rollout", "train"})
RUNNING = JobView(
    id=A, name="a", order=1, state=JobState.RUNNING, groups_per_batch=4, num_updates=10, engines_wanted=8
)
EXTERNAL = replace(RUNNING, has_external_agents=True)


def machine(name: str, *tags: str, phase: PhaseView | None = None) -> MachineView:
    bare = MachineView(id=UUID(bytes=name.encode()[:16].ljust(16, b"\0")), name=name, tags=frozenset(tags))
    return bare if phase is None else bare.with_phase(phase)


def working(name: str, job: UUID, role: Role, *tags: str, num_in_flight: int = 0) -> MachineView:
    phase = PhaseView(
        id=UUID(bytes=f"{name} phase".encode().ljust(16, b"\0")),
        job_id=job,
        role=role,
        state=PhaseState.ACTIVE,
        fence=1,
        num_in_flight=num_in_flight,
        age_s=1000.0,
    )
    return machine(name, *(tags or (role.value,)), phase=phase)


def roles(snapshot: Snapshot, job: UUID) -> dict[str, Role]:
    return {machine.name: phase.role for machine, phase in snapshot.live_phases(job)}


def test_an_idle_job_with_agents_of_its_own_leaves_its_engines_to_others() -> None:
    idle = replace(EXTERNAL, engines_wanted=0)
    busy = replace(EXTERNAL, id=B, name="b", order=2, state=JobState.QUEUED)
    machines = (working("alpha", A, Role.ROLLOUT, *BOTH), working("beta", A, Role.ROLLOUT))
    final = dry_run(Snapshot(machines=machines, jobs=(idle, busy))).final
    assert set(roles(final, B)) == {"alpha", "beta"}
    asked = replace(idle, engines_wanted=1)
    final = dry_run(Snapshot(machines=final.machines, jobs=(asked, *final.jobs[1:]))).final
    assert len(roles(final, A)) == len(roles(final, B)) == 1


def test_after_its_turn_a_machine_stays_with_a_job_that_has_no_more_than_its_share() -> None:
    """Its trainer counted as if it stayed, so another job got the machine, and lost it again at once."""
    turn = working("alpha", A, Role.TRAIN, *BOTH)
    assert turn.phase is not None
    back = NextPhase(role=Role.ROLLOUT, reason="its turn is over")
    training = replace(turn, phase=replace(turn.phase, num_batches=1, then=back))
    jobs = (replace(EXTERNAL, num_unpublished_batches=1), replace(EXTERNAL, id=B, name="b", order=2))
    machines = (training, *(working(name, B, Role.ROLLOUT, *BOTH) for name in ("beta", "gamma")))
    assert [d for d in decide(Snapshot(machines=(*machines, working("delta", A, Role.ROLLOUT)), jobs=jobs)).decisions
            if isinstance(d, SetNext)] == []  # fmt: skip


def test_a_job_that_begins_keeps_its_engine_until_its_agents_have_made_a_group() -> None:
    """It was taken between the moment when engine and agents were there and the first turn."""
    begins = replace(RUNNING, engines_wanted=0)
    agents = working("agents", A, Role.AGENT)
    others = replace(EXTERNAL, id=B, name="b", order=2)
    machines = (working("alpha", A, Role.ROLLOUT, *BOTH), agents, working("beta", B, Role.ROLLOUT, *BOTH))
    final = dry_run(Snapshot(machines=machines, jobs=(begins, others))).final
    assert roles(final, A) == {"alpha": Role.ROLLOUT, "agents": Role.AGENT}
    final = dry_run(Snapshot(machines=machines, jobs=(replace(begins, num_ready_groups=1), others))).final
    assert roles(final, A) == {"agents": Role.AGENT}, "from then on it has engines for its turns only"


def test_a_newcomer_gets_no_machine_on_which_another_job_will_train() -> None:
    machines = tuple(working(f"m{n}", A, Role.ROLLOUT, *BOTH, num_in_flight=n) for n in range(4))
    older = replace(EXTERNAL, trainer_state=frozenset({machines[0].id, machines[1].id}))
    newcomer = replace(EXTERNAL, id=B, name="b", order=2, state=JobState.STARTING)
    drained = {
        d.machine
        for d in decide(Snapshot(machines=machines, jobs=(older, newcomer))).decisions
        if isinstance(d, DrainPhase)
    }
    assert drained == {"m2", "m3"}


def test_engines_with_the_fewest_requests_are_taken_first() -> None:
    machines = tuple(working(f"m{n}", A, Role.ROLLOUT, *BOTH, num_in_flight=9 - n) for n in range(4))
    jobs = (EXTERNAL, replace(EXTERNAL, id=B, name="b", order=2, state=JobState.STARTING))
    drained = [
        d.machine
        for d in decide(Snapshot(machines=machines, jobs=jobs)).decisions
        if isinstance(d, DrainPhase)
    ]
    assert sorted(drained) == ["m2", "m3"]


def shares_of(*jobs: JobView, num_machines: int) -> list[int]:
    """Return how many engines each job gets of machines that only roll out, beside one that trains."""
    machines = (
        machine("trains", "train"),
        *(machine(f"m{number}", "rollout") for number in range(num_machines)),
    )
    snapshot = Snapshot(machines=machines, jobs=jobs)
    allocation = fleet_plan(snapshot, snapshot.jobs).shares.allocation
    return [allocation.num_placed((job.id, Role.ROLLOUT)) for job in jobs]


def test_an_on_policy_batch_that_ends_first_has_engines_of_later_ones() -> None:
    near = replace(EXTERNAL, engines_wanted=6)
    far = replace(near, id=B, name="b", order=2, engines_wanted=20)
    assert shares_of(far, near, num_machines=8) == [2, 6]
    done = replace(near, engines_wanted=1)
    assert shares_of(far, done, num_machines=8) == [7, 1], "the end of a batch leaves engines to the next one"
    wide = replace(near, engines_wanted=19)
    assert shares_of(far, wide, num_machines=8) == [2, 6], "the later batch keeps half of its share"


def test_jobs_that_generate_ahead_have_equal_parts_whoever_is_nearer_to_its_end() -> None:
    near = replace(EXTERNAL, engines_wanted=6, staleness_bound=StalenessBound(3))
    far = replace(near, id=B, name="b", order=2, engines_wanted=20)
    on_policy = replace(near, id=C, name="c", order=3, staleness_bound=StalenessBound(0))
    assert shares_of(far, near, num_machines=8) == [4, 4]
    assert shares_of(far, on_policy, num_machines=8) == [4, 4]


def test_parts_are_equal_in_cost_not_in_machines() -> None:
    anywhere = replace(EXTERNAL, engines_wanted=20, staleness_bound=StalenessBound(3))
    choosy = replace(anywhere, id=B, name="b", order=2, rollout_tags=frozenset({"gpu=h200"}))
    machines = (
        machine("trains", "train"),
        *(replace(machine(f"dear{number}", "rollout", "gpu=h200"), cost=4.0) for number in range(4)),
        *(machine(f"m{number}", "rollout") for number in range(8)),
    )
    snapshot = Snapshot(machines=machines, jobs=(anywhere, choosy))
    allocation = fleet_plan(snapshot, snapshot.jobs).shares.allocation
    given = [allocation.num_placed((job.id, Role.ROLLOUT)) for job in (anywhere, choosy)]
    assert given == [9, 3], "12 of cost each, though the first had to leave dear machines to the second"


def test_what_is_lent_exceeds_no_quota() -> None:
    near = replace(EXTERNAL, engines_wanted=6, project_id=UUID(int=70), project_quota=4)
    far = replace(EXTERNAL, id=B, name="b", order=2, engines_wanted=20, project_id=UUID(int=71))
    assert shares_of(far, near, num_machines=8) == [4, 4]


def seen(snapshot: Snapshot) -> list[str]:
    """Return what each machine does, in few words."""
    return [
        f"{m.name} {'+'.join(sorted(m.tags))}: {f'job {m.phase.job_id.int - 1} {m.phase.role}' if m.phase else 'free'}"
        for m in snapshot.machines
    ]


TAGS = st.sampled_from(
    [{"rollout"}, {"train"}, {"rollout", "train"}, {"agent"}, {"rollout", "gpu"}, {"agent", "rollout"}]
)


@st.composite
def fleets(draw: st.DrawFn, min_jobs: int = 2, min_machines: int = 1) -> Snapshot:
    """Healthy machines and jobs with constant demand, as they may be found at any moment."""
    ids = [UUID(int=number) for number in range(1, draw(st.integers(min_jobs, 5)) + 1)]
    gangs = {job_id: draw(st.sampled_from([1, 1, 2])) for job_id in ids}
    machines = []
    for number in range(draw(st.integers(min_machines, 9))):
        one = replace(machine(f"m{number}", *draw(TAGS)), agent_slots=draw(st.sampled_from([1, 2, 4])))
        if Role.AGENT.value in one.tags:
            one = _with_agents(draw, one, ids)
        able = [role for role in (Role.ROLLOUT, Role.TRAIN) if role.value in one.tags]
        is_working = draw(st.booleans())
        if able and is_working:
            job_id = draw(st.sampled_from(ids))
            role = draw(st.sampled_from(able))
            if role is Role.TRAIN and gangs[job_id] > 1:
                continue  # a gang has no lone member
            one = replace(one, phase=working(one.name, job_id, role, *one.tags).phase)
            assert one.phase is not None
            state = draw(st.sampled_from([PhaseState.ACTIVE, PhaseState.STARTING, PhaseState.DRAINING]))
            num_batches = draw(st.none() | st.just(1)) if one.phase.role is Role.TRAIN else None
            one = replace(one, phase=replace(one.phase, state=state, num_batches=num_batches))
        machines.append(one)
    jobs = [
        JobView(
            id=job_id,
            name=f"job {order}",
            order=order,
            state=draw(st.sampled_from([JobState.QUEUED, JobState.STARTING, JobState.RUNNING])),
            groups_per_batch=4,
            num_updates=10,
            engines_wanted=draw(st.none() | st.integers(0, 3)),
            priority=draw(st.sampled_from([0, 0, 1])),
            weight=draw(st.sampled_from([1.0, 2.0])),
            project_id=UUID(int=draw(st.integers(1, 2))),
            project_quota=draw(st.sampled_from([None, None, 4])),
            num_ready_groups=draw(st.sampled_from([0, 0, 4])),
            num_train_machines=gangs[job_id],
            extra_train_machines=draw(st.sampled_from([0, 0, 2])),
            has_external_agents=draw(st.booleans()),
            agents_wanted=draw(st.sampled_from([1, 1, 3])),
            rollout_tags=draw(st.sampled_from([frozenset[str](), frozenset({"gpu"})])),
            due_age_s=draw(st.sampled_from([1.0, 100.0])),
            owed=draw(st.sampled_from([0, 0, 1, -1])),
        )
        for order, job_id in enumerate(ids)
    ]
    quotas = {job.project_id: job.project_quota for job in jobs}  # a quota is its project's
    return Snapshot(
        machines=tuple(machines),
        jobs=tuple(replace(job, project_quota=quotas[job.project_id]) for job in jobs),
    )


def _with_agents(draw: st.DrawFn, one: MachineView, jobs: list[UUID]) -> MachineView:
    """Return the machine with agents of some jobs, of which one may be leaving."""
    for job_id in draw(st.lists(st.sampled_from(jobs), unique=True, max_size=one.agent_slots)):
        agents = working(f"{one.name} {job_id.int}", job_id, Role.AGENT).agents[0]
        state = draw(st.sampled_from([PhaseState.ACTIVE, PhaseState.ACTIVE, PhaseState.DRAINING]))
        one = one.with_phase(replace(agents, state=state))
    return one


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fleets())
def test_under_constant_demand_a_fleet_comes_to_rest_and_then_nothing_is_wasted(snapshot: Snapshot) -> None:
    final = dry_run(snapshot).final
    last = decide(final)
    assert not last.decisions, f"it does not come to rest: {seen(final)} {last.decisions}"
    plan = fleet_plan(final, final.jobs)
    held = {
        job.id: [m for m, phase in final.live_phases(job.id) if phase.role is Role.ROLLOUT]
        for job in final.jobs
    }
    given = {job.id: plan.shares.allocation.num_placed((job.id, Role.ROLLOUT)) for job in final.jobs}
    _check_agents(final, plan)
    for job in plan.floors.admitted:
        assert len(held[job.id]) >= given[job.id], "everybody has what it was given"
        unmet = min(plan.demands[job.id].rollout, 9) - len(held[job.id])
        if unmet <= 0 or not is_within_quota(job, final):
            continue
        usable = plan.fleet.classes_for(job, Role.ROLLOUT)
        for one in final.machines:
            if plan.fleet.class_of.get(one.id) not in usable:
                continue
            assert one.phase is not None, f"{one.name} idles, and {job.name} could use it: {seen(final)}"
            if one.phase.role is Role.ROLLOUT and one.phase.job_id in held and one.phase.job_id != job.id:
                assert len(held[one.phase.job_id]) <= max(given[one.phase.job_id], 1), (
                    f"{one.name} is above its holder's share, and {job.name} could use it: {seen(final)}"
                )


def _check_agents(final: Snapshot, plan: FleetPlan) -> None:
    """At rest each admitted job has its agents, and none whose agents are the bottleneck lacks a slot that is free."""
    for job in plan.floors.admitted:
        if not job.has_agents:
            continue
        ours = [machine for machine, phase in final.live_phases(job.id) if phase.role is Role.AGENT]
        assert len(ours) >= plan.agents.num_given[job.id] >= 1
        is_bottleneck = len(ours) < job.agents_wanted and plan.shares.has_enough_engines(job)
        if not is_bottleneck or not is_within_quota(job, final):
            continue
        for one in final.machines:
            is_full = len(one.agents) >= one.agent_slots
            assert Role.AGENT.value not in one.tags or one in ours or is_full, (
                f"{one.name} has a free slot, and {job.name} could use it"
            )


def is_within_quota(job: JobView, snapshot: Snapshot) -> bool:
    if job.project_quota is None:
        return True
    of_project = [other.id for other in snapshot.jobs if other.project_id == job.project_id]
    return sum(len(snapshot.live_phases(job_id)) for job_id in of_project) < job.project_quota


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fleets())
def test_no_lease_exceeds_a_quota(snapshot: Snapshot) -> None:
    leased: dict[UUID, int] = {}
    for decision in decide(snapshot).decisions:
        if isinstance(decision, Lease):
            leased[decision.job_id] = leased.get(decision.job_id, 0) + 1
    for job_id in leased:
        job = snapshot.job(job_id)
        assert job is not None
        of_project = [other.id for other in snapshot.jobs if other.project_id == job.project_id]
        now = sum(len(snapshot.live_phases(one)) for one in of_project) + sum(
            leased.get(one, 0) for one in of_project
        )
        before = sum(len(snapshot.live_phases(one)) for one in of_project)
        assert job.project_quota is None or now <= max(job.project_quota, before)


def test_what_jobs_of_a_kind_lack_is_said_in_the_words_of_each_project() -> None:
    holder = replace(RUNNING, name="holder", project_id=C)
    ours, theirs = (
        replace(
            RUNNING,
            id=UUID(int=number),
            name=str(number),
            order=number,
            state=JobState.QUEUED,
            project_id=owner,
        )
        for number, owner in ((5, C), (6, D))
    )
    also_ours = replace(ours, id=UUID(int=7), order=7, name="7")
    machines = (working("alpha", A, Role.ROLLOUT, *BOTH), machine("gamma", "agent"))
    waiting = decide(Snapshot(machines=machines, jobs=(holder, ours, theirs, also_ours))).waiting_reasons
    assert 'held by the job "holder"' in waiting[ours.id]
    assert "held by another job" in waiting[theirs.id]
    assert waiting[also_ours.id] == waiting[ours.id]
