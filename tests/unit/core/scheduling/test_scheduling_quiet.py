"""For how long a plan stays as it is: ages may grow until one passes a limit, and nothing else may
change."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow.core.algorithms.staleness_bound import StalenessBound
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PhaseState
from seamlessflow.core.scheduling.quiet import Quiet, quiet_s
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import GangView, JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role
from tests.fixtures.snapshots import GANGS, JOBS, failures, quarantines, snapshots

# Just below, at and above each limit that a rule of any module has, and far from all.
LIMITS_S = (5.0, 15.0, 30.0, 120.0, 300.0, 600.0, 1800.0)
AGES_S = [0.0, *(limit_s + by for limit_s in LIMITS_S for by in (-1.0, 0.0, 1.0))]
# The ages of failures at which a job may go back to a machine, or be tried again.
FAILURE_AGES_S = tuple(limit_s + by for limit_s in (10.0, 20.0, 30.0, 60.0, 120.0) for by in (-1.0, 0.0, 1.0))
JOB = JOBS[0]


@st.composite
def timed_phases(draw: st.DrawFn, number: int, roles: tuple[Role, ...]) -> PhaseView:
    role = draw(st.sampled_from(roles))
    gang = GangView(id=GANGS[0], member=number)
    return PhaseView(
        id=UUID(int=1000 + number),
        job_id=draw(st.sampled_from(JOBS[:2])),
        role=role,
        gang=draw(st.sampled_from([None, gang])) if role is Role.TRAIN else None,
        state=draw(st.sampled_from(sorted(LIVE_PHASE_STATES))),
        fence=number + 1,
        age_s=draw(st.sampled_from(AGES_S)),
    )


@st.composite
def timed_machines(draw: st.DrawFn, number: int) -> MachineView:
    machine = MachineView(
        id=UUID(int=100 + number),
        name=f"m{number}",
        tags=draw(
            st.sampled_from([frozenset({"rollout", "train"}), frozenset({"rollout", "train", "agent"})])
        ),
        agent_slots=draw(st.sampled_from([1, 2])),
        is_healthy=draw(st.sampled_from([True, True, True, False])),
        unheard_s=draw(st.sampled_from(AGES_S)),
        quarantine=draw(st.none() | quarantines()),
    )
    for offset, roles in ((0, (Role.TRAIN, Role.TRAIN, Role.ROLLOUT)), (50, (Role.AGENT,))):
        phase = draw(st.none() | timed_phases(number + offset, roles))
        machine = machine if phase is None else machine.with_phase(phase)
    return machine


@st.composite
def timed_snapshots(draw: st.DrawFn) -> Snapshot:
    """Return snapshots in which time matters: little else holds jobs up, and ages are near the limits."""
    machines = tuple(draw(timed_machines(n)) for n in range(draw(st.integers(1, 4))))
    jobs = tuple(
        JobView(
            id=job_id,
            order=order,
            state=JobState.RUNNING,
            num_updates=10,
            staleness_bound=StalenessBound(draw(st.sampled_from([0, 8]))),
            num_ready_groups=draw(st.integers(0, 2)),
            num_open_groups=draw(st.integers(0, 2)),
            hand_over_s=draw(st.sampled_from([0.0, 8.0])),
            batch_interval_s=draw(st.sampled_from([0.0, 7.5, 60.0])),
            due_age_s=draw(st.sampled_from(AGES_S)),
            has_external_agents=draw(st.sampled_from([True, True, False])),
            num_train_machines=draw(st.integers(1, 2)),
            extra_train_machines=draw(st.sampled_from([0, 1])),
        )
        for order, job_id in enumerate(JOBS[: draw(st.integers(1, 2))])
    )
    failed = tuple(draw(failures(n, FAILURE_AGES_S)) for n in range(draw(st.sampled_from([0, 0, 1, 3, 6]))))
    return Snapshot(machines=machines, jobs=jobs, failures=failed)


def later(snapshot: Snapshot, by_s: float) -> Snapshot:
    """Return the snapshot after some time in which nothing happened. A machine that falls silent is something."""
    machines = tuple(
        replace(
            machine,
            unheard_s=machine.unheard_s + by_s,
            phase=machine.phase and replace(machine.phase, age_s=machine.phase.age_s + by_s),
            agents=tuple(replace(phase, age_s=phase.age_s + by_s) for phase in machine.agents),
            quarantine=machine.quarantine
            and replace(machine.quarantine, age_s=machine.quarantine.age_s + by_s),
        )
        for machine in snapshot.machines
    )
    return replace(
        snapshot,
        machines=machines,
        jobs=tuple(_older(job, by_s) for job in snapshot.jobs),
        failures=tuple(replace(failure, age_s=failure.age_s + by_s) for failure in snapshot.failures),
    )


def _older(job: JobView, by_s: float) -> JobView:
    """Return a job with all ages that run: 0 means that there is nothing to count from."""
    return replace(
        job,
        due_age_s=job.due_age_s + by_s if job.due_age_s else 0.0,
        waiting_s=job.waiting_s + by_s if job.waiting_s else 0.0,
        admitted_s=job.admitted_s + by_s if job.admitted_s else 0.0,
        published_s=job.published_s + by_s,
        resumed_s=job.resumed_s + by_s,
    )


@settings(max_examples=1000, deadline=None)
@given(timed_snapshots() | snapshots(), st.floats(0.0, 1.0, exclude_max=True))
def test_a_plan_stays_as_it_is_for_as_long_as_quiet_says(snapshot: Snapshot, share: float) -> None:
    by_s = share * min(quiet_s(snapshot), 10_000.0)
    assert decide(later(snapshot, by_s)) == decide(snapshot)
    assert later(snapshot, by_s) == snapshot, "equal snapshots differ in ages only"


@given(timed_snapshots())
def test_quiet_ends_after_a_limit_and_does_not_end_at_once_for_ever(snapshot: Snapshot) -> None:
    num_looks = 0
    while (after_s := quiet_s(snapshot)) < float("inf"):
        snapshot = later(snapshot, after_s + 0.001)
        num_looks += 1
        # Each phase passes seven limits, each machine three, each job five and each failure 13.
        num_phases = sum(len(machine.phases) for machine in snapshot.machines)
        limit = 7 * num_phases + 3 * len(snapshot.machines) + 5 * len(snapshot.jobs)
        assert num_looks <= limit + 13 * len(snapshot.failures)


def world(*, state: PhaseState = PhaseState.STARTING, age_s: float = 0.0) -> Snapshot:
    job = JobView(id=JOB, order=0, state=JobState.RUNNING)
    phase = PhaseView(id=JOBS[1], job_id=JOB, role=Role.ROLLOUT, state=state, fence=1, age_s=age_s)
    machine = MachineView(id=JOBS[2], name="m", tags=frozenset({"rollout", "train"}), phase=phase)
    return Snapshot(machines=(machine,), jobs=(job,))


def test_a_snapshot_is_covered_until_its_time_is_over() -> None:
    quiet = Quiet(world(age_s=1.0), until_s=100.0)
    assert quiet.covers(world(age_s=3.0), 99.9)
    assert not quiet.covers(world(age_s=3.0), 100.0)


@pytest.mark.parametrize(
    "changed",
    [
        replace(world(), may_evict=False),
        world(state=PhaseState.ACTIVE),
        replace(world(), machines=()),
        replace(world(), jobs=()),
        replace(world(), jobs=(replace(world().jobs[0], num_ready_groups=1),)),
        replace(world(), jobs=(replace(world().jobs[0], waiting_reason="overwritten"),)),
        replace(world(), machines=(replace(world().machines[0], is_healthy=False),)),
    ],
)
def test_a_snapshot_with_another_fact_is_not_covered(changed: Snapshot) -> None:
    assert not Quiet(world(), until_s=100.0).covers(changed, 0.0)
