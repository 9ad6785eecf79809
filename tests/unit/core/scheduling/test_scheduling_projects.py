"""Several projects on fewer machines than floors: each has its part, whoever came first or submitted most."""

from dataclasses import replace
from uuid import UUID

import pytest

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.decisions import DrainPhase, Lease, MoveJob
from seamlessflow.core.scheduling.explain.dry_run import dry_run
from seamlessflow.core.scheduling.passes.rotation import OVERDUE_S, QUANTUM_S
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role
from tests.fixtures.fleet_simulation import Load, Simulation

BOTH = frozenset({"rollout", "train"})
OURS, THEIRS = UUID(int=70), UUID(int=71)
MINUTE_S = 60.0


def job(number: int, project: UUID, **changes: object) -> JobView:
    view = JobView(
        id=UUID(int=number), name=f"job {number}", order=number, state=JobState.RUNNING, project_id=project,
        has_external_agents=True, num_updates=100, engines_wanted=1, admitted_s=60.0, published_s=30.0,
    )  # fmt: skip
    return replace(view, **changes)  # type: ignore[arg-type]


def queued(number: int, project: UUID, waiting_s: float = 1.0, **changes: object) -> JobView:
    return job(number, project, state=JobState.QUEUED, waiting_s=waiting_s, admitted_s=0.0, **changes)


def machine(number: int, holder: JobView | None = None) -> MachineView:
    one = MachineView(id=UUID(int=100 + number), name=f"m{number}", tags=BOTH)
    if holder is None:
        return one
    phase = PhaseView(
        id=UUID(int=200 + number), job_id=holder.id, role=Role.ROLLOUT, state=PhaseState.ACTIVE, fence=1,
        age_s=60.0,
    )  # fmt: skip
    return replace(one, phase=phase)


def drained(snapshot: Snapshot) -> list[str]:
    return [one.machine for one in decide(snapshot).decisions if isinstance(one, DrainPhase)]


def leased(snapshot: Snapshot) -> set[UUID]:
    return {one.job_id for one in decide(snapshot).decisions if isinstance(one, Lease)}


def test_a_free_machine_goes_to_the_project_that_holds_less_not_to_the_longest_wait() -> None:
    held = job(1, THEIRS)
    waiting = [queued(number, THEIRS, waiting_s=500.0) for number in (2, 3)]
    ours = queued(9, OURS)
    snapshot = Snapshot(machines=(machine(0, held), machine(1)), jobs=(held, *waiting, ours))
    assert leased(snapshot) == {ours.id}


def test_a_job_of_a_project_with_more_than_its_part_gives_way_when_it_has_published() -> None:
    first, second = job(1, THEIRS), job(2, THEIRS)
    waiting = queued(3, THEIRS, waiting_s=500.0)
    machines = (machine(0, first), machine(1, second))
    before = Snapshot(machines=machines, jobs=(first, second, waiting, queued(9, OURS)))
    assert not drained(before), "not in the middle of a batch"
    published = replace(second, published_s=0.5)
    assert drained(replace(before, jobs=(first, published, waiting, queued(9, OURS)))) == ["m1"]


def test_equal_projects_with_one_machine_each_do_not_swap_them_at_each_publication() -> None:
    ours, theirs = job(1, OURS, published_s=0.5), job(2, THEIRS, published_s=0.5)
    waiting = (queued(3, OURS, waiting_s=800.0), queued(4, THEIRS, waiting_s=800.0))
    snapshot = Snapshot(machines=(machine(0, ours), machine(1, theirs)), jobs=(ours, theirs, *waiting))
    assert not decide(snapshot).decisions


def test_engines_that_another_project_claimed_before_are_no_reason_that_nobody_gives_way() -> None:
    """The job that waits fits beside the floors alone, but not beside them and the engine that the other project has
    by its part: so a job of its own project gives way after its quantum."""
    overdue = QUANTUM_S + OVERDUE_S + 1
    first, second = (job(number, THEIRS, admitted_s=overdue) for number in (1, 2))
    ours = job(9, OURS, engines_wanted=2, admitted_s=overdue)
    waiting = queued(3, THEIRS, waiting_s=100 * QUANTUM_S)
    machines = [machine(n, holder) for n, holder in enumerate((first, second, ours, ours))]
    snapshot = Snapshot(machines=tuple(machines), jobs=(first, second, waiting, ours))
    assert len(drained(snapshot)) == 1
    assert drained(snapshot)[0] in {"m0", "m1"}


def test_the_priority_of_a_member_takes_nothing_from_another_project() -> None:
    ours = job(1, OURS, published_s=0.5)
    greedy = [queued(number, THEIRS, priority=100) for number in (2, 3)]
    theirs = job(4, THEIRS, published_s=30.0)
    snapshot = Snapshot(machines=(machine(0, ours), machine(1, theirs)), jobs=(ours, theirs, *greedy))
    assert drained(snapshot) == ["m1"], "priority orders the jobs of its own project"
    let = [replace(one, priority_ceiling=100) for one in greedy]
    assert "m0" in drained(replace(snapshot, jobs=(ours, theirs, *let))), "operators may let it count"


def shares(loads: list[Load], *, num_machines: int, warm_up_s: float, seconds: float) -> dict[int, float]:
    """Return which part of the time of machines each project had, of what is right by its weight."""
    machines = {f"m{number}": {"rollout", "train"} for number in range(num_machines)}
    simulation = Simulation(machines, loads, tick_s=1.0).run(warm_up_s)
    simulation.held_s.clear()
    simulation.run(seconds)
    held: dict[int, float] = {}
    for load in loads:
        held[load.project] = held.get(load.project, 0.0) + simulation.held_s.get(load.name, 0.0)
    total = sum(held.values())
    assert total > 0.9 * num_machines * seconds, "machines work all the time"
    weights = {load.project: load.project_weight for load in loads}
    unit = total / sum(weights.values())
    return {project: num / (unit * weights[project]) for project, num in held.items()}


def mixed(project: int, num_jobs: int, *, weight: float = 1.0, begins_s: float = 0.0) -> list[Load]:
    """Return jobs of several lengths, which come one after the other."""
    sizes = [(2, 4.0), (4, 2.0), (3, 6.0)]
    return [
        Load(
            f"{project}-{number}", num_groups=sizes[number % 3][0], group_size=8,
            turn_s=(1.0, 2.0, sizes[number % 3][1]), step_s=1.5, project=project, project_weight=weight,
            starts_at_s=begins_s + 3.0 * number, num_updates=1_000 if number % 2 else 30,
        )
        for number in range(num_jobs)
    ]  # fmt: skip


def hungry(project: int, weight: float = 1.0) -> Load:
    """Return a job that could use the whole fleet all the time, and comes when others have it."""
    return Load(
        f"{project}-hungry", num_groups=8, group_size=8, turn_s=(1.0, 2.0, 4.0), step_s=1.5, max_lag=3,
        project=project, project_weight=weight, starts_at_s=15.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    "num_machines, weights, num_jobs",
    [(2, (3.0, 1.0), (8, 4)), (2, (1.0, 1.0, 1.0), (6, 4, 4))],
)  # fmt: skip
def test_projects_have_their_parts_over_20_minutes_of_mixed_jobs_on_fewer_machines_than_floors(
    num_machines: int, weights: tuple[float, ...], num_jobs: tuple[int, ...]
) -> None:
    loads = [
        load
        for project, (weight, num) in enumerate(zip(weights, num_jobs, strict=True), start=1)
        for load in mixed(project, num, weight=weight, begins_s=20.0 * (project - 1))
    ]
    found = shares(loads, num_machines=num_machines, warm_up_s=0.0, seconds=20 * MINUTE_S)
    for part in found.values():
        assert part == pytest.approx(1.0, abs=0.1), found


@pytest.mark.parametrize("num_machines", [2, 3])
def test_29_jobs_of_one_project_leave_its_part_to_a_single_job_of_another(num_machines: int) -> None:
    loads = [*mixed(1, 29), hungry(2)]
    found = shares(loads, num_machines=num_machines, warm_up_s=1.5 * MINUTE_S, seconds=4 * MINUTE_S)
    for part in found.values():
        assert part == pytest.approx(1.0, abs=0.1), found


def test_machines_that_no_job_may_use_are_part_of_no_project() -> None:
    few = frozenset({"few"})
    first, second = (
        job(number, THEIRS, rollout_tags=few, train_tags=few, published_s=0.5) for number in (1, 2)
    )
    ours = queued(9, OURS, rollout_tags=few, train_tags=few)
    waiting = [queued(number, THEIRS, 500.0, rollout_tags=few, train_tags=few) for number in (3, 4, 5)]
    tagged = [replace(machine(n, held), tags=BOTH | few) for n, held in enumerate((first, second))]
    others = [machine(number) for number in range(2, 8)]
    snapshot = Snapshot(machines=(*tagged, *others), jobs=(first, second, *waiting, ours))
    assert len(drained(snapshot)) == 1


def test_any_number_of_jobs_on_other_machines_keep_no_project_from_its_part_of_these() -> None:
    few = frozenset({"few"})
    elsewhere = [
        job(number, THEIRS, rollout_tags=frozenset({"many"}), published_s=0.5, admitted_s=600.0)
        for number in range(20, 40)
    ]
    first, second = (job(number, THEIRS, rollout_tags=few, published_s=0.5) for number in (41, 42))
    machines = [
        *(replace(machine(one.order, one), tags=BOTH | {"many"}) for one in elsewhere),
        *(replace(machine(one.order, one), tags=BOTH | few) for one in (first, second)),
    ]
    ours = queued(99, OURS, rollout_tags=few)
    jobs = (*elsewhere, first, second, ours)
    assert drained(Snapshot(machines=tuple(machines), jobs=jobs)) == ["m41"]


def test_a_job_that_waits_for_machines_of_another_project_gets_them_when_a_turn_ends() -> None:
    """Its own project has machines enough, but none that it could use. Jobs of the other one follow each other."""
    few = frozenset({"few"})
    ours = job(1, OURS)
    overdue = job(2, THEIRS, rollout_tags=few, admitted_s=QUANTUM_S + OVERDUE_S + 1.0)
    oldest = queued(3, OURS, 2 * QUANTUM_S, rollout_tags=few)
    theirs = queued(4, THEIRS, QUANTUM_S, rollout_tags=few)
    machines = (
        machine(0, ours), replace(machine(1, overdue), tags=BOTH | few), machine(2, ours), machine(3, ours),
    )  # fmt: skip
    plan = decide(Snapshot(machines=machines, jobs=(ours, overdue, oldest, theirs)))
    assert [one.machine for one in plan.decisions if isinstance(one, DrainPhase)] == ["m1"]
    assert [one.job_id for one in plan.decisions if isinstance(one, MoveJob)] == [oldest.id]


def test_what_a_job_gives_up_goes_to_the_one_that_it_gives_way_to() -> None:
    """Another one at work lacked its floor and took the agents' slot, and they took it from each other in turns."""
    holder = job(1, OURS, has_external_agents=False)
    lacking = job(2, OURS, has_external_agents=False, state=JobState.STARTING)
    urgent = queued(3, OURS, has_external_agents=False, priority=1)
    agents = MachineView(id=UUID(int=199), name="agents", tags=frozenset({"agent"}), agent_slots=1)
    machines = (machine(0, holder), machine(1), machine(2), agents)
    final = dry_run(Snapshot(machines=machines, jobs=(holder, lacking, urgent))).final
    assert not decide(final).decisions
    assert {phase.job_id for one in final.machines for phase in one.phases} == {urgent.id}
