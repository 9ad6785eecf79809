"""Gangs on small hand-made snapshots: all or none, starting and stopping together, and which job
gives way."""

from dataclasses import replace
from uuid import UUID

import pytest

from seamlessflow.core.algorithms.staleness_bound import StalenessBound
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.decisions import DrainPhase, FailPhase, Lease, LeaseGang, Plan
from seamlessflow.core.scheduling.explain.dry_run import dry_run
from seamlessflow.core.scheduling.explain.preview import preview
from seamlessflow.core.scheduling.passes.gangs import GATHER_LIMIT_S
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import GangView, JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.desired_state import MachineEdit
from seamlessflow.core.types.tags import Role

JOB, OTHER, GANG = UUID(int=1), UUID(int=2), UUID(int=9)
BOTH = ("rollout", "train")
RUNNING = JobView(
    id=JOB, order=1, state=JobState.RUNNING, groups_per_batch=4, num_updates=10, num_train_machines=2
)
DUE = replace(RUNNING, num_ready_groups=4)


def machine(name: str, *tags: str, phase: PhaseView | None = None) -> MachineView:
    bare = MachineView(id=UUID(bytes=name.encode().ljust(16, b"\0")), name=name, tags=frozenset(tags))
    return bare if phase is None else bare.with_phase(phase)


def phase(
    name: str, role: Role, state: PhaseState = PhaseState.ACTIVE, *, job: UUID = JOB, age_s: float = 0.0
) -> PhaseView:
    return PhaseView(
        id=UUID(bytes=f"{name} {role}".encode().ljust(16, b"\0")[:16]),
        job_id=job,
        role=role,
        state=state,
        fence=1,
        age_s=age_s,
    )


def member(number: int, state: PhaseState = PhaseState.ACTIVE, **known: object) -> PhaseView:
    age_s = known.pop("age_s", 0.0)
    gang = GangView(id=GANG, member=number, **known)  # type: ignore[arg-type]
    return replace(phase(f"gang{number}", Role.TRAIN, state, age_s=float(age_s)), gang=gang)  # type: ignore[arg-type]


def at(name: str, *tags: str, rollout: PhaseState | None = PhaseState.ACTIVE, job: UUID = JOB) -> MachineView:
    return machine(name, *tags, phase=phase(name, Role.ROLLOUT, rollout, job=job) if rollout else None)


GAMMA = machine("gamma", "agent", phase=phase("gamma", Role.AGENT))
ALPHA, BETA = at("alpha", *BOTH), at("beta", *BOTH)


def plan_of(*machines: MachineView, jobs: tuple[JobView, ...] = (DUE,)) -> Plan:
    return decide(Snapshot(machines=machines, jobs=jobs))


def drained(plan: Plan) -> dict[str, str]:
    return {d.machine: d.reason for d in plan.decisions if isinstance(d, DrainPhase)}


def failed(plan: Plan) -> dict[str, str]:
    return {d.machine: d.reason for d in plan.decisions if isinstance(d, FailPhase)}


def gang_of(plan: Plan) -> list[str]:
    found = [[name for _, name in d.machines] for d in plan.decisions if isinstance(d, LeaseGang)]
    return found[0] if found else []


def test_machines_that_roll_out_hand_over_together_once_a_batch_is_ready() -> None:
    assert plan_of(ALPHA, BETA, GAMMA, jobs=(RUNNING,)).decisions == ()
    plan = plan_of(ALPHA, BETA, GAMMA)
    assert set(drained(plan)) == {"alpha", "beta"}
    assert all(isinstance(d, DrainPhase) and d.then and d.then.role is Role.TRAIN for d in plan.decisions)


def test_the_machine_that_is_free_first_waits_for_the_last_and_both_are_leased_at_once() -> None:
    slow = at("beta", *BOTH, rollout=PhaseState.DRAINING)
    free = at("alpha", *BOTH, rollout=None)
    assert plan_of(free, slow, GAMMA).decisions == (), "not rolled out again, not trained alone"

    plan = plan_of(free, at("beta", *BOTH, rollout=None), GAMMA)

    assert gang_of(plan) == ["alpha", "beta"]
    (gang,) = plan.decisions
    assert isinstance(gang, LeaseGang)
    assert (gang.num_batches, gang.then and gang.then.role) == (1, Role.ROLLOUT)


def test_a_job_that_trains_on_all_that_roll_out_says_so() -> None:
    machines = (machine("alpha", *BOTH, phase=member(0)), machine("beta", *BOTH, phase=member(1)), GAMMA)
    plan = plan_of(*machines)
    assert plan.decisions == ()
    assert plan.waiting_reasons[JOB] == (
        "training on all machines that roll out; requests are held meanwhile"
    )


def test_a_slow_hand_over_is_reported_and_a_forming_gang_does_not_wait_for_a_second_batch() -> None:
    assert isinstance(ALPHA.phase, PhaseView)
    leaving = replace(ALPHA, phase=replace(ALPHA.phase, state=PhaseState.DRAINING, age_s=9.0))
    dear = replace(
        DUE, hand_over_s=5.0, batch_interval_s=10.0, staleness_bound=StalenessBound(4), num_open_groups=40
    )
    assert plan_of(ALPHA, BETA, GAMMA, jobs=(dear,)).decisions == (), "worth waiting for a second batch"

    plan = plan_of(leaving, at("beta", *BOTH, rollout=None), GAMMA, jobs=(dear,))

    assert plan.decisions == ()
    assert plan.waiting_reasons[JOB] == "training waits for alpha to hand over"


def test_dedicated_machines_are_leased_together_for_as_long_as_the_job_runs() -> None:
    rest = (at("beta", "rollout"), GAMMA)
    one = machine("delta", "train")
    other = machine("epsilon", "train")
    plan = plan_of(one, other, *rest, jobs=(RUNNING,))
    assert gang_of(plan) == ["delta", "epsilon"]
    alone = plan_of(one, *rest, jobs=(RUNNING,))
    assert not any(isinstance(d, Lease | LeaseGang) for d in alone.decisions)
    assert alone.waiting_reasons[JOB] == (
        "2 machines must train together, but 1 can (delta): 1 has the tags: train"
    )


def test_the_reason_why_the_other_machine_cannot_train_is_reported() -> None:
    silent = replace(machine("epsilon", "train"), is_healthy=False, unheard_s=20.0)
    plan = plan_of(machine("delta", "train"), silent, at("beta", "rollout"), GAMMA, jobs=(RUNNING,))
    assert plan.waiting_reasons[JOB] == (
        "2 machines must train together, but 1 can (delta): epsilon sends no heartbeats"
    )


@pytest.mark.parametrize("number", [0, 1])
def test_a_member_that_must_leave_ends_the_gang(number: int) -> None:
    tags: list[tuple[str, ...]] = [BOTH, BOTH]
    tags[number] = ("rollout",)
    plan = plan_of(
        machine("alpha", *tags[0], phase=member(0)), machine("beta", *tags[1], phase=member(1)), GAMMA
    )
    assert set(drained(plan)) == {"alpha", "beta"}
    name = ["alpha", "beta"][number]
    assert (
        drained(plan)[["beta", "alpha"][number]] == f"it trains with {name}, and {name} lacks the tag train"
    )


def test_a_dry_run_says_that_the_whole_gang_ends() -> None:
    machines = (machine("alpha", *BOTH, phase=member(0)), machine("beta", *BOTH, phase=member(1)), GAMMA)
    edits = {machines[1].id: MachineEdit(tags=["rollout"])}
    looked = preview(Snapshot(machines=machines, jobs=(DUE,)), edits)
    assert {impact.machine: impact.is_by_edit for impact in looked.phases} == {"alpha": True, "beta": True}


@pytest.mark.parametrize("left", [member(0, has_ended=True), member(1, PhaseState.ACTIVE, has_ended=True)])
def test_the_remaining_members_of_an_ending_gang_are_drained(left: PhaseView) -> None:
    plan = plan_of(machine("alpha", *BOTH, phase=left), machine("beta", *BOTH), GAMMA)
    assert drained(plan) == {"alpha": "its gang stops training"}
    assert gang_of(plan) == []


def test_a_member_that_fails_or_goes_silent_fails_the_others() -> None:
    lost = member(0, failure="the disk is full")
    assert failed(plan_of(machine("alpha", *BOTH, phase=lost), machine("beta", *BOTH), GAMMA)) == {
        "alpha": "the gang lost a member: the disk is full"
    }
    silent = replace(machine("beta", *BOTH, phase=member(1)), is_healthy=False, unheard_s=20.0)
    assert failed(plan_of(machine("alpha", *BOTH, phase=member(0)), silent, GAMMA)) == {
        "beta": "beta sends no heartbeats",
        "alpha": "the gang lost a member: beta sends no heartbeats",
    }


def test_a_gang_that_does_not_assemble_is_released_as_a_whole_and_the_missing_members_are_named() -> None:
    late = GATHER_LIMIT_S + 1
    leader = machine("alpha", *BOTH, phase=member(0, PhaseState.STARTING, age_s=30.0))
    follower = machine("beta", *BOTH, phase=member(1, PhaseState.LEASED, age_s=30.0))
    plan = plan_of(leader, follower, GAMMA)
    assert failed(plan) == {}
    assert plan.waiting_reasons[JOB] == "training waits for beta to join"

    leader = machine("alpha", *BOTH, phase=member(0, PhaseState.STARTING, age_s=late))
    follower = machine("beta", *BOTH, phase=member(1, PhaseState.LEASED, age_s=late))
    reason = f"the gang did not come together within {GATHER_LIMIT_S:g} s: beta did not join"
    assert failed(plan_of(leader, follower, GAMMA)) == {"alpha": reason, "beta": reason}

    joined = machine("beta", *BOTH, phase=member(1, PhaseState.ACTIVE, age_s=late))
    assert "alpha did not join" in failed(plan_of(leader, joined, GAMMA))["beta"]


def test_of_two_jobs_that_train_on_the_same_machines_each_gets_its_turn() -> None:
    """Each rolls out on one of two machines that could train and needs both to train."""
    other = replace(DUE, id=OTHER, order=2, num_ready_groups=0)
    zeta = machine("zeta", "agent", phase=phase("zeta", Role.AGENT, job=OTHER))
    machines = (ALPHA, at("beta", *BOTH, job=OTHER), GAMMA, zeta)
    snapshot = Snapshot(machines=machines, jobs=(DUE, other))
    plan = decide(snapshot)
    assert drained(plan) == {
        "alpha": "1 full batch is ready: the machine switches to training",
        "beta": "another job needs the machine to train",
    }

    run = dry_run(snapshot)

    trains = {m.name for m, phase in run.final.live_phases(JOB) if phase.role is Role.TRAIN}
    assert trains == {"alpha", "beta"}
    assert [m.name for m, _ in run.final.live_phases(OTHER)] == ["zeta"], (
        "its agents stay, and their turns are held"
    )


def test_machines_do_not_wait_for_a_gang_that_the_fleet_cannot_hold() -> None:
    greedy = replace(DUE, num_train_machines=3)
    other = replace(DUE, id=OTHER, order=2, num_train_machines=1, has_external_agents=True)
    final = dry_run(
        Snapshot(machines=(ALPHA, at("beta", *BOTH, job=OTHER), GAMMA), jobs=(greedy, other))
    ).final
    assert {m.name for m, _ in final.live_phases(OTHER)} == {"alpha", "beta"}
    assert dry_run(final).waiting[JOB] == (
        "3 machines must train together, but 2 can (alpha, beta): 2 have the tags: train"
    )


ELASTIC = replace(DUE, extra_train_machines=2, engines_wanted=0)


def leased_gang(plan: Plan) -> list[str]:
    return sorted(name for d in plan.decisions if isinstance(d, LeaseGang) for _, name in d.machines)


def free(*names: str) -> list[MachineView]:
    return [machine(name, *BOTH) for name in names]


def test_a_gang_takes_what_nobody_needs_up_to_its_most() -> None:
    fleet = free("alpha", "beta", "delta", "epsilon", "zeta")
    assert leased_gang(decide(Snapshot(machines=(*fleet[:2], GAMMA), jobs=(ELASTIC,)))) == ["alpha", "beta"]
    assert len(leased_gang(decide(Snapshot(machines=(*fleet[:3], GAMMA), jobs=(ELASTIC,))))) == 3
    assert len(leased_gang(decide(Snapshot(machines=(*fleet, GAMMA), jobs=(ELASTIC,))))) == 4
    assert leased_gang(decide(Snapshot(machines=(fleet[0], GAMMA), jobs=(ELASTIC,)))) == []


def test_a_gang_leaves_engines_that_turns_wait_for_to_others() -> None:
    other = replace(
        DUE, id=OTHER, order=2, num_train_machines=1, num_ready_groups=0, has_external_agents=True
    )
    fleet = (*free("alpha", "beta", "delta", "epsilon"), GAMMA)
    plan = decide(Snapshot(machines=fleet, jobs=(ELASTIC, replace(other, engines_wanted=1))))
    assert len(leased_gang(plan)) == 3
    plan = decide(Snapshot(machines=fleet, jobs=(ELASTIC, replace(other, engines_wanted=2))))
    assert len(leased_gang(plan)) == 2


def test_a_gang_keeps_its_size_until_its_turn_ends() -> None:
    """Neither does a machine that becomes free join it, nor do engines of others take one of its machines."""
    training = [machine(name, *BOTH, phase=member(n)) for n, name in enumerate(("alpha", "beta", "delta"))]
    other = replace(
        DUE, id=OTHER, order=2, num_train_machines=1, num_ready_groups=0, has_external_agents=True
    )
    fleet = (*training, *free("epsilon"), GAMMA)
    plan = decide(Snapshot(machines=fleet, jobs=(ELASTIC, replace(other, engines_wanted=4))))
    assert not [d for d in plan.decisions if isinstance(d, DrainPhase | LeaseGang)]
    assert [d.machine for d in plan.decisions if isinstance(d, Lease)] == ["epsilon"]


def test_a_trainer_of_one_machine_may_grow_with_its_next_turn() -> None:
    alone = replace(ELASTIC, num_train_machines=1)
    assert leased_gang(decide(Snapshot(machines=(*free("alpha"), GAMMA), jobs=(alone,)))) == ["alpha"]
    assert len(leased_gang(decide(Snapshot(machines=(*free("alpha", "beta"), GAMMA), jobs=(alone,))))) == 2


@pytest.mark.parametrize("quota, num", [(None, 4), (4, 3), (3, 2), (2, 0)])
def test_machines_that_only_train_join_as_far_as_the_quota_of_the_project_goes(
    quota: int | None, num: int
) -> None:
    """The trainer is kept ready there, before a batch is. The quota counts the machine with the agents as well."""
    early = replace(ELASTIC, num_ready_groups=0, project_quota=quota)
    fleet = [machine(name, "train") for name in ("alpha", "beta", "delta", "epsilon", "zeta")]
    assert len(leased_gang(decide(Snapshot(machines=(*fleet, GAMMA), jobs=(early,))))) == num


def test_a_gang_that_only_trains_goes_on_with_fewer_machines_when_others_need_one() -> None:
    """Its phases have no end, so it gives all of them up and begins again with what is left."""
    offline = replace(DUE, has_rollout=False, extra_train_machines=1)
    other = replace(DUE, id=OTHER, order=2, num_train_machines=1, has_external_agents=True)
    training = [machine(name, *BOTH, phase=member(n)) for n, name in enumerate(("alpha", "beta", "delta"))]
    still = decide(Snapshot(machines=tuple(training), jobs=(offline,)))
    assert not still.decisions
    run = dry_run(Snapshot(machines=tuple(training), jobs=(offline, other)))
    assert sorted(m.name for m, _ in run.final.live_phases(JOB)) == ["alpha", "beta"]
    assert [m.name for m, _ in run.final.live_phases(OTHER)] == ["delta"]


def test_an_elastic_gang_that_waits_says_how_many_it_needs_at_least() -> None:
    snapshot = Snapshot(machines=(*free("alpha"), GAMMA), jobs=(ELASTIC,))
    reason = decide(snapshot).waiting_reasons[JOB]
    assert reason.startswith("at least 2 machines must train together, but 1 can (alpha)")
