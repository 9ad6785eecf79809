"""Faults of a scheduler that served jobs in order of creation, each as it was seen there.

Faults 4 and 8 have tests in `test_scheduling_judging`, `test_engine_pool` and `test_scale`; what follows from fault 5
for trainers is in `test_scheduling_warm` and `test_trainer_evictions`.
"""

import cProfile
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.decisions import DrainPhase, SetNext
from seamlessflow.core.scheduling.explain.dry_run import dry_run, obeyed
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import JobView, Snapshot
from seamlessflow.core.types.tags import Role
from tests.fixtures.fleet_simulation import Load, Simulation
from tests.unit.core.scheduling.test_scheduling_fleet import (
    BOTH,
    EXTERNAL,
    RUNNING,
    A,
    B,
    C,
    machine,
    roles,
    working,
)


def test_fault_1_two_jobs_that_hold_what_the_other_needs_do_not_wait_for_ever() -> None:
    """The first holds the only machine for agents, the second the only one for engines."""
    other = replace(RUNNING, id=B, name="b", order=2)
    machines = (working("agents", A, Role.AGENT), working("engine", B, Role.ROLLOUT, *BOTH))
    final = dry_run(Snapshot(machines=machines, jobs=(RUNNING, other))).final
    assert roles(final, A) == {"agents": Role.AGENT, "engine": Role.ROLLOUT}
    assert [job.state for job in final.jobs] == [JobState.RUNNING, JobState.QUEUED]


def test_fault_2_a_job_that_stops_for_a_gang_completes_it() -> None:
    """The younger job cannot run, so it gave way; but the third machine stayed with a job that could, and the gang
    remained incomplete."""
    gang = replace(EXTERNAL, num_train_machines=3, num_ready_groups=4)
    short = replace(RUNNING, id=B, name="b", order=2)
    works = replace(EXTERNAL, id=C, name="c", order=3)
    machines = tuple(working(f"m{number}", job, Role.ROLLOUT, *BOTH) for number, job in enumerate((A, B, C)))
    run = dry_run(Snapshot(machines=machines, jobs=(gang, short, works)))
    assert {d.machine for d in run.decisions if isinstance(d, DrainPhase)} == {"m0", "m1", "m2"}
    assert roles(run.final, A) == dict.fromkeys(("m0", "m1", "m2"), Role.TRAIN)


def test_fault_2_a_job_does_not_stop_for_a_gang_that_would_still_be_incomplete() -> None:
    gang = replace(EXTERNAL, num_train_machines=3)
    short = replace(EXTERNAL, id=B, name="b", order=2)
    machines = (working("m1", A, Role.ROLLOUT, *BOTH), working("m2", B, Role.ROLLOUT, *BOTH))
    final = dry_run(Snapshot(machines=machines, jobs=(gang, short))).final
    assert "m2" in roles(final, B)
    assert dry_run(final).waiting[A].startswith("3 machines must train together, but 2 can (m1, m2)")


def test_fault_3_a_wide_gang_is_admitted_although_small_young_jobs_keep_coming() -> None:
    """Each machine that became free went to a young job, because the gang was short and claimed nothing."""
    num_turns, came = 15, 10
    queued = replace(EXTERNAL, state=JobState.QUEUED, has_rollout=False)
    wide = replace(queued, num_train_machines=4)
    stream = (replace(queued, id=UUID(int=100 + n), name=f"small {n}", order=n) for n in range(1, 1000))
    snapshot = Snapshot(machines=tuple(machine(f"m{number}", *BOTH) for number in range(4)), jobs=())
    began: dict[UUID, int] = {}
    for turn in range(came + num_turns + 10):
        jobs = [*_going_on(snapshot, began, turn, num_turns), *([wide] if turn == came else [])]
        jobs += [next(stream)] if turn % 3 == 0 else []
        snapshot = replace(snapshot, jobs=tuple(jobs))
        snapshot = obeyed(snapshot, decide(snapshot))
        if len(roles(snapshot, A)) == 4:
            break
    assert roles(snapshot, A) == dict.fromkeys((f"m{number}" for number in range(4)), Role.TRAIN)
    assert any(job.state is JobState.QUEUED for job in snapshot.jobs), "the fleet was full"


def _going_on(snapshot: Snapshot, began: dict[UUID, int], turn: int, num_turns: int) -> Iterator[JobView]:
    """Yield the jobs that are not over; each has `num_turns` turns with a machine."""
    for job in snapshot.jobs:
        if snapshot.live_phases(job.id):
            began.setdefault(job.id, turn)
        if turn - began.get(job.id, turn) < num_turns:
            is_queued = job.state is JobState.QUEUED
            yield replace(job, waiting_s=job.waiting_s + 10.0 if is_queued else 0.0)


def test_fault_3_a_wide_gang_is_admitted_although_young_jobs_with_engines_keep_coming() -> None:
    machines = {f"m{number}": set(BOTH) for number in range(4)}
    small = [
        Load(f"small{n}", 1, 4, (0.5,), 0.5, num_slots=2, num_updates=40, starts_at_s=2.0 * n)
        for n in range(60)
    ]
    wide = Load("wide", 2, 4, (0.5,), 0.5, num_slots=4, num_train_machines=4, starts_at_s=10.0)
    simulation = Simulation(machines, [*small, wide]).run(200.0)
    assert simulation.job("wide").view.published_batch > 0
    assert any(job.view.state is JobState.QUEUED for job in simulation.jobs.values()), "the fleet was full"


def test_fault_5_a_trainer_returns_to_the_machine_that_has_its_state() -> None:
    due = replace(EXTERNAL, num_ready_groups=4)
    other = replace(EXTERNAL, id=B, name="b", order=2)
    home = working("zeta", B, Role.ROLLOUT, *BOTH, num_in_flight=9)
    machines = (working("alpha", A, Role.ROLLOUT, *BOTH), home)
    job = replace(due, trainer_state=frozenset({home.id}))
    drains = [
        d
        for d in decide(Snapshot(machines=machines, jobs=(job, other))).decisions
        if isinstance(d, DrainPhase)
    ]
    trains = [d for d in drains if d.then is not None and d.then.role is Role.TRAIN]
    assert [(d.machine, d.then and d.then.job_id) for d in trains] == [("zeta", A)]


def test_fault_6_after_its_turn_a_machine_goes_to_the_job_that_needs_it_without_a_round_trip() -> None:
    turn = working("alpha", A, Role.TRAIN, *BOTH)
    assert turn.phase is not None
    training = replace(turn, phase=replace(turn.phase, num_batches=1))
    idle = replace(EXTERNAL, engines_wanted=0, num_unpublished_batches=1, num_updates=1)
    due = replace(EXTERNAL, id=B, name="b", order=2, num_ready_groups=4)
    machines = (training, working("beta", B, Role.ROLLOUT))
    (decision,) = [
        d for d in decide(Snapshot(machines=machines, jobs=(idle, due))).decisions if isinstance(d, SetNext)
    ]
    assert (decision.machine, decision.then.job_id, decision.then.role) == ("alpha", B, Role.TRAIN)


def test_fault_7_twice_the_machines_and_jobs_cost_twice_as_much() -> None:
    """The cost was machines times machines times jobs. Calls are counted, because they do not depend on the host."""
    small, large = calls_to_decide(50, 5), calls_to_decide(200, 20)
    assert large <= 5 * small


def calls_to_decide(num_machines: int, num_jobs: int) -> int:
    """Return the number of function calls of a cycle in which each job has its part of the machines."""
    ids = [UUID(int=number) for number in range(1, num_jobs + 1)]
    jobs = tuple(replace(EXTERNAL, id=job_id, name=f"job {job_id.int}", order=job_id.int) for job_id in ids)
    machines = tuple(working(f"m{n}", ids[n % num_jobs], Role.ROLLOUT, *BOTH) for n in range(num_machines))
    snapshot = Snapshot(machines=machines, jobs=jobs)
    profile = cProfile.Profile()
    profile.runcall(decide, snapshot)
    return sum(entry.callcount for entry in profile.getstats())


def test_fault_7_a_waiting_reason_is_short_whatever_the_size_of_the_fleet() -> None:
    machines = tuple(
        replace(machine(f"a-machine-with-a-name-of-{number:040}", "train"), is_healthy=False)
        for number in range(1000)
    )
    reason = decide(Snapshot(machines=machines, jobs=(RUNNING,))).waiting_reasons[A]
    assert "no machine has the tags for role rollout" in reason
    reason = decide(Snapshot(machines=machines, jobs=(replace(RUNNING, has_rollout=False),))).waiting_reasons[
        A
    ]
    assert len(reason) <= 500
    assert "sends no heartbeats" in reason
