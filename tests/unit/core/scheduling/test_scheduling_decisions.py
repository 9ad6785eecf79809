"""The scheduling decision on small hand-made snapshots: which decisions and reasons follow from
given machines and jobs."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from seamlessflow.core.algorithms.staleness_bound import StalenessBound
from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import EPISODE_GRACE_S, STEP_GRACE_S, PhaseState
from seamlessflow.core.scheduling.blame.health import START_LIMIT_S, Patience, suspicion_s
from seamlessflow.core.scheduling.decisions import (
    Decision,
    DrainPhase,
    FailPhase,
    Lease,
    MoveJob,
    NextPhase,
    Plan,
    SetDesiredVersion,
)
from seamlessflow.core.scheduling.heartbeats import HEARTBEAT_LIMIT_S
from seamlessflow.core.scheduling.passes.multiplexing import EMPTY_TURN_GRACE_S
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role

JOB = UUID(int=1)
OTHER = UUID(int=2)


def machine(name: str, *tags: str, phase: PhaseView | None = None) -> MachineView:
    bare = MachineView(id=UUID(bytes=name.encode().ljust(16, b"\0")), name=name, tags=frozenset(tags))
    return bare if phase is None else bare.with_phase(phase)


def phase(role: Role, *, state: PhaseState = PhaseState.ACTIVE, job: UUID = JOB, fence: int = 1) -> PhaseView:
    number = (list(Role).index(role) + 1) * 1000 + fence
    return PhaseView(id=UUID(int=number), job_id=job, role=role, state=state, fence=fence)


ROLLOUT = phase(Role.ROLLOUT)
AGENT = phase(Role.AGENT)
TRAIN = phase(Role.TRAIN)
QUEUED = JobView(id=JOB, order=1, state=JobState.QUEUED, groups_per_batch=4, num_updates=10)
RUNNING = replace(QUEUED, state=JobState.RUNNING)
MULTIPLEXED = (machine("alpha", "rollout", "train"), machine("beta", "rollout"), machine("gamma", "agent"))
AT_WORK = (
    replace(MULTIPLEXED[0], phase=ROLLOUT),
    replace(MULTIPLEXED[1], phase=phase(Role.ROLLOUT, fence=2)),
    MULTIPLEXED[2].with_phase(AGENT),
)


def plan_of(*jobs: JobView, machines: tuple[MachineView, ...]) -> Plan:
    return decide(Snapshot(machines=machines, jobs=jobs))


def leases(plan: Plan) -> dict[str, Role]:
    return {d.machine: d.role for d in plan.decisions if isinstance(d, Lease)}


def drained(plan: Plan) -> set[str]:
    return {d.machine for d in plan.decisions if isinstance(d, DrainPhase)}


def of_kind(plan: Plan, kind: type[Decision]) -> list[Decision]:
    return [d for d in plan.decisions if isinstance(d, kind)]


def test_every_machine_gets_its_role_from_a_queued_job() -> None:
    plan = plan_of(QUEUED, machines=MULTIPLEXED)
    assert leases(plan) == {"alpha": Role.ROLLOUT, "beta": Role.ROLLOUT, "gamma": Role.AGENT}
    assert [d.to_state for d in plan.decisions if isinstance(d, MoveJob)] == [JobState.STARTING]


@pytest.mark.parametrize(
    "missing, expected",
    [("rollout", "role rollout: rollout"), ("train", "role train: train"), ("agent", "role agent: agent")],
)
def test_a_missing_tag_keeps_the_job_queued_and_role_and_tags_are_named(missing: str, expected: str) -> None:
    machines = tuple(replace(m, tags=m.tags - {missing}) for m in MULTIPLEXED)
    plan = plan_of(QUEUED, machines=machines)
    assert plan.decisions == ()
    assert f"no machine has the tags for {expected}" in plan.waiting_reasons[JOB]


def test_a_missing_placement_tag_is_named() -> None:
    plan = plan_of(replace(QUEUED, train_tags=frozenset({"gpu=h200"})), machines=MULTIPLEXED)
    assert plan.decisions == ()
    assert plan.waiting_reasons[JOB] == "no machine has the tags for role train: gpu=h200, train"


def test_external_agents_need_no_agent_machine() -> None:
    plan = plan_of(replace(QUEUED, has_external_agents=True), machines=MULTIPLEXED[:1])
    assert leases(plan) == {"alpha": Role.ROLLOUT}


RECORDED = replace(QUEUED, has_rollout=False)


def test_a_job_on_recorded_trajectories_needs_one_machine_that_trains() -> None:
    plan = plan_of(RECORDED, machines=MULTIPLEXED)
    assert leases(plan) == {"alpha": Role.TRAIN}
    assert [d.to_state for d in plan.decisions if isinstance(d, MoveJob)] == [JobState.STARTING]
    plan = plan_of(RECORDED, machines=MULTIPLEXED[1:])
    assert plan.decisions == ()
    assert plan.waiting_reasons[JOB] == "no machine has the tags for role train: train"


def test_a_job_on_recorded_trajectories_trains_on_one_machine_until_its_updates_are_done() -> None:
    starting = replace(RECORDED, state=JobState.STARTING)
    begins = (replace(MULTIPLEXED[0], phase=replace(TRAIN, state=PhaseState.STARTING)), *MULTIPLEXED[1:])
    plan = plan_of(starting, machines=begins)
    assert (plan.decisions, plan.waiting_reasons[JOB]) == ((), "waiting for the trainer to become active")
    trains = (replace(MULTIPLEXED[0], phase=replace(TRAIN, age_s=1000.0)), *MULTIPLEXED[1:])
    plan = plan_of(starting, machines=trains)
    assert [d.to_state for d in plan.decisions if isinstance(d, MoveJob)] == [JobState.RUNNING]
    running = replace(starting, state=JobState.RUNNING)
    assert plan_of(running, machines=trains).decisions == ()
    done = plan_of(replace(running, published_batch=running.num_updates), machines=trains)
    assert drained(done) == {"alpha"}


def test_a_starting_job_runs_once_an_engine_and_the_agents_are_active() -> None:
    starting = replace(RUNNING, state=JobState.STARTING)
    waiting = (AT_WORK[0], AT_WORK[2].with_phase(replace(AGENT, state=PhaseState.STARTING)))
    assert (
        plan_of(starting, machines=waiting).waiting_reasons[JOB] == "waiting for the agents to become active"
    )
    plan = plan_of(starting, machines=AT_WORK)
    assert [d.to_state for d in plan.decisions if isinstance(d, MoveJob)] == [JobState.RUNNING]
    assert plan.waiting_reasons[JOB] == ""


def test_a_running_job_whose_phases_fail_says_how_often_and_why() -> None:
    failing = replace(RUNNING, num_failures=2, last_failure="the disk is full")
    reason = plan_of(failing, machines=AT_WORK).waiting_reasons[JOB]
    assert reason == "retrying after 2 failed phases; last failure: the disk is full"


def test_a_dedicated_machine_trains_for_as_long_as_the_job_runs() -> None:
    machines = (*AT_WORK, machine("delta", "train"))
    plan = plan_of(RUNNING, machines=machines)
    (lease,) = of_kind(plan, Lease)
    assert isinstance(lease, Lease)
    assert (lease.machine, lease.role, lease.num_batches, lease.then) == ("delta", Role.TRAIN, None, None)
    starting = (*machines[1:2], replace(machines[2], agents=()), machines[3])
    assert "delta" not in leases(plan_of(replace(RUNNING, state=JobState.STARTING), machines=starting))


def test_enough_ready_groups_take_the_multiplexed_machine_from_rollout() -> None:
    assert plan_of(replace(RUNNING, num_ready_groups=3), machines=AT_WORK).decisions == ()
    plan = plan_of(replace(RUNNING, num_ready_groups=4), machines=AT_WORK)
    (drain,) = plan.decisions
    assert isinstance(drain, DrainPhase)
    assert drain.machine == "alpha"
    assert "1 full batch is ready" in drain.reason
    assert drain.then is not None
    assert (drain.then.role, drain.then.num_batches) == (Role.TRAIN, 1)


@pytest.mark.parametrize("ready, batches", [(4, 1), (9, 2), (40, 2)])
def test_the_drained_machine_trains_one_or_two_batches(ready: int, batches: int) -> None:
    drained = (MULTIPLEXED[0], *AT_WORK[1:])
    (lease,) = plan_of(replace(RUNNING, num_ready_groups=ready), machines=drained).decisions
    assert isinstance(lease, Lease)
    assert (lease.machine, lease.role, lease.num_batches) == ("alpha", Role.TRAIN, batches)
    assert lease.then is not None
    assert lease.then.role is Role.ROLLOUT


def test_a_batch_that_a_dead_trainer_left_behind_is_due_again() -> None:
    drained = (MULTIPLEXED[0], *AT_WORK[1:])
    (lease,) = plan_of(replace(RUNNING, num_unpublished_batches=1), machines=drained).decisions
    assert isinstance(lease, Lease)
    assert lease.role is Role.TRAIN


def test_after_training_the_machine_rolls_out_again() -> None:
    plan = plan_of(replace(RUNNING, published_batch=1), machines=(MULTIPLEXED[0], *AT_WORK[1:]))
    assert leases(plan) == {"alpha": Role.ROLLOUT}


def test_a_training_phase_without_a_batch_gives_the_machine_back() -> None:
    def with_age(age_s: float) -> tuple[MachineView, ...]:
        return (replace(MULTIPLEXED[0], phase=replace(TRAIN, age_s=age_s)), *AT_WORK[1:])

    assert plan_of(RUNNING, machines=with_age(1.0)).decisions == ()
    (drain,) = plan_of(RUNNING, machines=with_age(EMPTY_TURN_GRACE_S + 1)).decisions
    assert isinstance(drain, DrainPhase)


def test_the_only_rollout_machine_may_train_too() -> None:
    colocated = (AT_WORK[0], AT_WORK[2])
    (drain,) = plan_of(replace(RUNNING, num_ready_groups=4), machines=colocated).decisions
    assert isinstance(drain, DrainPhase)
    training = (replace(MULTIPLEXED[0], phase=TRAIN), AT_WORK[2])
    plan = plan_of(replace(RUNNING, num_unpublished_batches=1), machines=training)
    assert plan.decisions == ()
    assert "held meanwhile" in plan.waiting_reasons[JOB]


def test_a_finished_job_drains_and_then_completes() -> None:
    done = replace(RUNNING, published_batch=10, num_ready_groups=40)
    plan = plan_of(done, machines=AT_WORK)
    assert len(of_kind(plan, DrainPhase)) == len(plan.decisions) == 3
    (move,) = plan_of(done, machines=MULTIPLEXED).decisions
    assert isinstance(move, MoveJob)
    assert move.to_state is JobState.COMPLETED


@pytest.mark.parametrize(
    "desired, via, end",
    [
        (DesiredJobState.CANCEL, JobState.CANCELLING, JobState.CANCELLED),
        (DesiredJobState.PAUSE, JobState.PAUSING, JobState.PAUSED),
    ],
)
def test_cancelling_and_pausing_drain_first(desired: DesiredJobState, via: JobState, end: JobState) -> None:
    job = replace(RUNNING, desired=desired)
    plan = plan_of(job, machines=AT_WORK)
    assert "gamma" in {d.machine for d in plan.decisions if isinstance(d, DrainPhase)}
    assert [d.to_state for d in plan.decisions if isinstance(d, MoveJob)] == [via]
    without_agents = plan_of(job, machines=AT_WORK[:2])
    assert len(of_kind(without_agents, DrainPhase)) == 2
    (move,) = plan_of(replace(job, state=via), machines=MULTIPLEXED).decisions
    assert isinstance(move, MoveJob)
    assert move.to_state is end


def test_a_job_that_is_resumed_before_it_has_paused_does_not_say_that_a_request_paused_it() -> None:
    """The platform had paused it, and a person resumed it at once."""
    job = replace(RUNNING, state=JobState.PAUSING)
    draining = replace(AT_WORK[0], phase=replace(ROLLOUT, state=PhaseState.DRAINING))
    waiting = plan_of(job, machines=(draining,)).waiting_reasons[JOB]
    assert waiting == "resumed before it had paused; waiting for alpha (rollout) to drain"
    (move,) = plan_of(job, machines=MULTIPLEXED).decisions
    assert isinstance(move, MoveJob)
    assert (move.to_state, move.reason) == (JobState.PAUSED, "resumed before it had paused")


def test_a_pause_lets_episodes_end_before_the_engines_stop() -> None:
    training = (replace(AT_WORK[0], phase=TRAIN), *AT_WORK[1:])
    pausing = replace(RUNNING, desired=DesiredJobState.PAUSE, state=JobState.PAUSING)
    drains = {
        d.machine: d.grace_s
        for d in plan_of(pausing, machines=training).decisions
        if isinstance(d, DrainPhase)
    }
    assert drains == {"alpha": None, "gamma": EPISODE_GRACE_S}, "beta serves the last turns"

    leaving = (*training[:2], AT_WORK[2].with_phase(replace(AGENT, state=PhaseState.DRAINING)))
    assert "beta" not in drained(plan_of(pausing, machines=leaving))
    gone = (*training[:2], MULTIPLEXED[2])
    assert "beta" in drained(plan_of(pausing, machines=gone))
    silent = (*training[:2], replace(leaving[2], is_healthy=False))
    assert "beta" in drained(plan_of(pausing, machines=silent))


def test_a_pausing_job_keeps_one_engine_if_others_want_the_machines() -> None:
    pausing = replace(RUNNING, desired=DesiredJobState.PAUSE, state=JobState.PAUSING)
    engines = tuple(
        machine(name, "rollout", phase=replace(ROLLOUT, id=UUID(int=500 + n), num_in_flight=n))
        for n, name in enumerate(("one", "three", "two"), start=1)
    )
    agents = (machine("agents", "agent", phase=replace(AGENT, id=UUID(int=510))),)
    other = replace(RUNNING, id=OTHER, order=1, engines_wanted=2, has_external_agents=True)
    beside = (machine("other", "rollout", "train", phase=replace(ROLLOUT, id=UUID(int=520), job_id=OTHER)),)
    plan = decide(Snapshot(machines=(*engines, *agents, *beside), jobs=(pausing, other)))
    (drain,) = (d for d in plan.decisions if isinstance(d, DrainPhase) and d.machine != "agents")
    assert (drain.machine, drain.then) == (
        "one",
        NextPhase(role=Role.ROLLOUT, job_id=OTHER, reason="its job pauses"),
    )

    greedy = replace(other, engines_wanted=9)
    plan = decide(Snapshot(machines=(*engines, *agents, *beside), jobs=(pausing, greedy)))
    assert drained(plan) == {"agents", "one", "three"}, "the busiest engine serves the last turns"
    content = replace(other, engines_wanted=1)
    plan = decide(Snapshot(machines=(*engines, *agents, *beside), jobs=(pausing, content)))
    assert drained(plan) == {"agents"}


def test_a_cancelled_job_does_not_wait_for_episodes_and_not_long_for_a_step() -> None:
    training = (replace(AT_WORK[0], phase=TRAIN), *AT_WORK[1:])
    plan = plan_of(replace(RUNNING, desired=DesiredJobState.CANCEL), machines=training)
    drains = {d.machine: d.grace_s for d in plan.decisions if isinstance(d, DrainPhase)}
    assert drains == {"alpha": STEP_GRACE_S, "beta": None, "gamma": 0.0}


def test_resuming_puts_a_paused_job_back_into_the_queue() -> None:
    (move,) = plan_of(replace(QUEUED, state=JobState.PAUSED), machines=MULTIPLEXED).decisions
    assert isinstance(move, MoveJob)
    assert move.to_state is JobState.QUEUED


def test_a_silent_machine_loses_its_phase() -> None:
    machines = (replace(AT_WORK[0], is_healthy=False), *AT_WORK[1:])
    plan = plan_of(RUNNING, machines=machines)
    (failed,) = of_kind(plan, FailPhase)
    assert isinstance(failed, FailPhase)
    assert failed.reason == "alpha sends no heartbeats"


def test_after_a_time_without_any_heartbeat_every_machine_gets_its_full_time() -> None:
    """For example when the web process was stopped: the first machine that is heard again evicts no
    other."""
    silent = [replace(m, is_healthy=False, unheard_s=60.0) for m in AT_WORK]
    patience = Patience(since_s=0.0)
    patience.note(AT_WORK, 50.0)
    assert patience.is_over(50.0)

    patience.note(silent, 60.0)
    patience.note([AT_WORK[0], *silent[1:]], 61.0)

    assert not patience.is_over(60.0 + HEARTBEAT_LIMIT_S)
    assert patience.is_over(60.1 + HEARTBEAT_LIMIT_S)


def test_eviction_waits_when_most_machines_go_silent_at_once() -> None:
    silent = [replace(m, is_healthy=False, unheard_s=20.0) for m in AT_WORK]
    assert of_kind(plan_of(RUNNING, machines=tuple(silent)), FailPhase) == []
    assert of_kind(plan_of(RUNNING, machines=(*silent[:2], AT_WORK[2])), FailPhase) == []
    long_silent = [replace(m, unheard_s=suspicion_s(m) + 1) for m in silent[:2]]
    assert len(of_kind(plan_of(RUNNING, machines=(*long_silent, AT_WORK[2])), FailPhase)) == 2


def test_a_phase_that_never_starts_is_given_up() -> None:
    stuck = replace(ROLLOUT, state=PhaseState.STARTING, age_s=START_LIMIT_S + 1)
    plan = plan_of(RUNNING, machines=(replace(AT_WORK[0], phase=stuck), *AT_WORK[1:]))
    (failed,) = plan.decisions
    assert isinstance(failed, FailPhase)
    assert "did not start within" in failed.reason


def test_a_job_waits_while_no_machine_can_run_its_engine_and_says_why() -> None:
    embedded, problems = frozenset({"embedded"}), {"vllm": "python has no vLLM"}
    without = tuple(replace(one, engine_kinds=embedded, engine_problems=problems) for one in MULTIPLEXED)
    job = replace(QUEUED, engine="vllm")

    plan = plan_of(job, machines=without)

    assert leases(plan) == {}
    assert "beta cannot run the engine vllm: python has no vLLM" in plan.waiting_reasons[JOB]
    with_vllm = (
        *without[:1],
        replace(without[1], engine_kinds=frozenset({"embedded", "vllm"})),
        *without[2:],
    )
    assert leases(plan_of(replace(job, state=JobState.STARTING), machines=with_vllm))["beta"] is Role.ROLLOUT
    assert leases(plan_of(QUEUED, machines=MULTIPLEXED)) == leases(plan_of(QUEUED, machines=without))


def test_a_cordoned_machine_keeps_its_phase_and_gets_no_new_one() -> None:
    cordoned = replace(AT_WORK[0], is_cordoned=True)
    assert plan_of(RUNNING, machines=(cordoned, *AT_WORK[1:])).decisions == ()
    plan = plan_of(RUNNING, machines=(replace(cordoned, phase=None), *AT_WORK[1:]))
    assert plan.decisions == ()
    assert "alpha is cordoned" in plan.waiting_reasons[JOB]


def test_draining_or_retagging_a_machine_drains_its_phase() -> None:
    (drain,) = plan_of(
        RUNNING, machines=(AT_WORK[0], replace(AT_WORK[1], is_draining=True), AT_WORK[2])
    ).decisions
    assert isinstance(drain, DrainPhase)
    assert (drain.machine, drain.reason) == ("beta", "beta is being drained")
    retagged = replace(AT_WORK[1], tags=frozenset({"train"}))
    plan = plan_of(RUNNING, machines=(AT_WORK[0], retagged, AT_WORK[2]))
    (drain,) = plan.decisions
    assert isinstance(drain, DrainPhase)
    assert drain.reason == "beta lacks the tag rollout"


def test_the_last_rollout_machine_may_leave_and_return_while_the_agents_stay() -> None:
    lost = (replace(MULTIPLEXED[0], tags=frozenset({"train"})), AT_WORK[2])
    plan = plan_of(RUNNING, machines=lost)
    assert of_kind(plan, MoveJob) == []
    assert drained(plan) == set(), "the agents stay: their turns are held"
    assert plan.waiting_reasons[JOB] == "no machine has the tags for role rollout: rollout"
    back = plan_of(RUNNING, machines=(MULTIPLEXED[0], AT_WORK[2]))
    assert leases(back) == {"alpha": Role.ROLLOUT}


def test_an_edit_during_a_change_to_training_changes_which_machine_trains() -> None:
    due = replace(RUNNING, num_ready_groups=4)
    leaving = replace(ROLLOUT, state=PhaseState.DRAINING)
    swapped = (
        replace(AT_WORK[0], tags=frozenset({"rollout"}), phase=leaving),
        replace(AT_WORK[1], tags=frozenset({"rollout", "train"})),
        AT_WORK[2],
    )
    plan = plan_of(due, machines=swapped)
    assert drained(plan) == {"beta"}
    ended = (replace(swapped[0], phase=None), replace(swapped[1], phase=None), swapped[2])
    assert leases(plan_of(due, machines=ended)) == {"alpha": Role.ROLLOUT, "beta": Role.TRAIN}


def test_an_engine_behind_the_latest_version_is_told_to_update() -> None:
    (decision, _) = plan_of(replace(RUNNING, latest_version=3), machines=AT_WORK).decisions
    assert isinstance(decision, SetDesiredVersion)
    assert decision.version == 3


def test_the_older_job_is_served_first_and_the_younger_one_says_why_it_waits() -> None:
    younger = replace(QUEUED, id=OTHER, order=2)
    plan = plan_of(younger, QUEUED, machines=MULTIPLEXED)
    assert {d.job_id for d in plan.decisions if isinstance(d, Lease)} == {JOB}
    assert "gamma is held by another job" in plan.waiting_reasons[OTHER]


def test_a_reason_for_waiting_names_five_machines_and_counts_the_others() -> None:
    silent = [replace(machine(f"m{i}", "train"), is_healthy=False) for i in range(8)]
    plan = plan_of(QUEUED, machines=(*silent, *MULTIPLEXED[-2:]))
    reason = plan.waiting_reasons[JOB]
    assert "; m4 sends no heartbeats; and 3 more" in reason
    assert "m5" not in reason


def test_a_pool_that_the_project_may_not_use_is_out_of_reach() -> None:
    plan = plan_of(replace(QUEUED, pools=frozenset({"lab"})), machines=MULTIPLEXED)
    assert plan.decisions == ()
    assert "which the job's project may not use" in plan.waiting_reasons[JOB]


def test_a_phase_of_a_finished_job_is_drained() -> None:
    plan = plan_of(machines=AT_WORK)
    assert len(of_kind(plan, DrainPhase)) == 3


def test_agents_go_to_a_machine_that_does_nothing_else_if_there_is_one() -> None:
    mixed = replace(machine("a", "agent", "train"), agent_slots=4)
    plan = plan_of(QUEUED, machines=(mixed, machine("b", "agent"), machine("c", "rollout")))
    assert leases(plan) == {"b": Role.AGENT, "c": Role.ROLLOUT}


DEAR = replace(
    RUNNING,
    num_ready_groups=4,
    num_open_groups=8,
    staleness_bound=StalenessBound(3),
    hand_over_s=0.3,
    batch_interval_s=1.0,
    due_age_s=0.5,
)


def test_training_waits_for_a_second_batch_if_handing_over_is_expensive() -> None:
    assert plan_of(DEAR, machines=AT_WORK).decisions == ()
    (drain,) = plan_of(replace(DEAR, num_ready_groups=8), machines=AT_WORK).decisions
    assert isinstance(drain, DrainPhase)
    assert drain.then is not None
    assert drain.then.num_batches == 2


@pytest.mark.parametrize(
    "change",
    [
        {"batch_interval_s": 60.0},
        {"staleness_bound": StalenessBound(1)},
        {"num_open_groups": 3},
        {"due_age_s": 2.1},
        {"num_updates": 1},
    ],
    ids=["cheap", "no staleness to spare", "too few under way", "waited long", "the last batch"],
)
def test_training_does_not_wait_for_a_second_batch_if_that_would_delay_something(
    change: dict[str, Any],
) -> None:
    (drain,) = plan_of(replace(DEAR, **change), machines=AT_WORK).decisions
    assert isinstance(drain, DrainPhase)


def test_a_job_completes_only_when_its_last_version_is_measured() -> None:
    trained = replace(RUNNING, published_batch=RUNNING.num_updates, awaits_evaluation=True)

    waiting = plan_of(trained, machines=AT_WORK)
    done = plan_of(replace(trained, awaits_evaluation=False), machines=AT_WORK)

    assert waiting.decisions == ()
    assert "the last version is being evaluated" in waiting.waiting_reasons[JOB]
    assert drained(done) == {"alpha", "beta", "gamma"}


def test_a_request_to_a_job_comes_before_the_evaluation_of_its_last_version() -> None:
    trained = replace(RUNNING, published_batch=RUNNING.num_updates, awaits_evaluation=True)

    paused = plan_of(replace(trained, desired=DesiredJobState.PAUSE), machines=AT_WORK)

    assert [d.to_state for d in paused.decisions if isinstance(d, MoveJob)] == [JobState.PAUSING]


@pytest.mark.parametrize("state", [JobState.STARTING, JobState.RUNNING])
def test_a_job_whose_phases_fail_is_not_said_to_be_well(state: JobState) -> None:
    failing = replace(RUNNING, state=state, num_failures=2, last_failure="the disk is full")
    plan = plan_of(failing, machines=AT_WORK)
    moved = [d.reason for d in plan.decisions if isinstance(d, MoveJob)]
    said = [*moved, *getattr(plan, "state_reasons", {}).values()]
    assert said, "why the job is in its state"
    assert all("the disk is full" in one and "active" not in one for one in said)


def test_a_running_job_without_its_machines_is_not_said_to_be_well() -> None:
    plan = plan_of(RUNNING, machines=(AT_WORK[0],))
    assert "active" in getattr(plan_of(RUNNING, machines=AT_WORK), "state_reasons", {JOB: ""})[JOB]
    assert plan.waiting_reasons[JOB]
    assert (
        getattr(plan, "state_reasons", {JOB: "an engine and the agents are active"})[JOB]
        == plan.waiting_reasons[JOB]
    )
