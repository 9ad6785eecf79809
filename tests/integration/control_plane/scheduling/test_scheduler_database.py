"""The scheduler with PostgreSQL: what a cycle leases, drains and reports; races, queries,
fences."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat, PoolGrant
from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.services.moves import job_desire
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.services.leases import WakeUp, plan_apply
from seamlessflow.control_plane.trajectories.models import RolloutGroup
from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PhaseState
from seamlessflow.core.protocol.worker import PhaseReport
from seamlessflow.core.scheduling.blame.judging import MAX_TRIES
from seamlessflow.core.scheduling.decisions import Plan
from seamlessflow.core.scheduling.evidence import LONGEST_RETRY_S
from seamlessflow.core.scheduling.heartbeats import HEARTBEAT_LIMIT_S
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, Worker, worker_make

MAX_QUERIES = 6


def cycle() -> list[WakeUp]:
    return plan_apply(decide(snapshot_load()))


def cluster() -> dict[str, Worker]:
    workers = {
        "alpha": worker_make("alpha", "rollout", "train"),
        "beta": worker_make("beta", "rollout"),
        "gamma": worker_make("gamma", "agent"),
    }
    for worker in workers.values():
        worker.heartbeat()
    return workers


def activate() -> None:
    for phase in Phase.objects.filter(state=PhaseState.LEASED):
        assert phase_move(phase_id=phase.id, to=PhaseState.ACTIVE, reason="test", author="machine")


def live() -> dict[str, str]:
    phases = Phase.objects.exclude(state__in=[PhaseState.ENDED, PhaseState.FAILED]).select_related("machine")
    return {phase.machine.name: f"{phase.role} {phase.state}" for phase in phases}


def ready_groups(job: Job, number: int) -> None:
    now = timezone.now()
    RolloutGroup.objects.bulk_create(
        RolloutGroup(
            id=f"00000000-0000-7000-8000-{index:012d}", project_id=job.project_id, job=job, index=index, size=2,
            state="ready", created_at=now, ready_at=now,
        )
        for index in range(number)
    )  # fmt: skip


def test_a_job_goes_from_queued_to_running_and_multiplexes(cast: Cast) -> None:
    cluster()
    job = cast.job(rollout={"groups_per_batch": 2, "group_size": 2})
    wake_ups = cycle()
    assert {wake_up.machine for wake_up in wake_ups} == {"alpha", "beta", "gamma"}
    assert live() == {"alpha": "rollout leased", "beta": "rollout leased", "gamma": "agent leased"}
    activate()
    cycle()
    job.refresh_from_db()
    assert (job.state, job.waiting_reason) == (JobState.RUNNING, "")

    ready_groups(job, 2)
    (wake_up,) = cycle()
    assert wake_up.machine == "alpha"
    assert live()["alpha"] == "rollout draining"
    assert phase_move(phase_id=wake_up.phase_id, to=PhaseState.ENDED, reason="done", author="machine")
    cycle()
    assert live()["alpha"] == "train leased"
    train = Phase.objects.get(role="train")
    job.refresh_from_db()
    assert (train.num_batches, train.fence) == (1, 2)
    assert job.train_fence == train.fence
    reasons = Event.objects.filter(kind="phase.state", author="scheduler").values_list("reason", flat=True)
    assert all(reasons)


def turn_to_training(cast: Cast, cluster: dict[str, Worker]) -> tuple[Job, Phase]:
    """Return an active job whose alpha has been told to hand over, because a batch is ready."""
    job = cast.job(rollout={"groups_per_batch": 2, "group_size": 2})
    cycle()
    activate()
    cycle()
    ready_groups(job, 2)
    (wake_up,) = cycle()
    assert cluster["alpha"].heartbeat().orders[0].is_draining
    return job, Phase.objects.get(id=wake_up.phase_id)


def ended(phase: Phase) -> PhaseReport:
    return PhaseReport(phase_id=phase.id, fence=phase.fence, state=PhaseState.ENDED)


def test_the_reply_to_the_end_of_a_phase_contains_the_next_order_in_both_directions(cast: Cast) -> None:
    workers = cluster()
    _, rollout = turn_to_training(cast, workers)

    (order,) = workers["alpha"].heartbeat(phases=[ended(rollout)]).orders

    assert (order.role, order.num_batches, order.fence) == (Role.TRAIN, 1, rollout.fence + 1)
    assert cycle() == [], "the scheduler finds nothing left to decide"
    train = Phase.objects.get(id=order.phase_id)
    assert phase_move(phase_id=train.id, to=PhaseState.ACTIVE, reason="", author="machine")
    (back,) = workers["alpha"].heartbeat(phases=[ended(train)]).orders
    assert (back.role, back.fence) == (Role.ROLLOUT, train.fence + 1)


def test_reporting_an_end_again_leases_nothing_more(cast: Cast) -> None:
    workers = cluster()
    _, rollout = turn_to_training(cast, workers)
    first = workers["alpha"].heartbeat(phases=[ended(rollout)])

    assert workers["alpha"].heartbeat(phases=[ended(rollout)]).orders[0].fence == first.orders[0].fence
    assert Phase.objects.filter(machine__name="alpha").count() == 2


def test_a_phase_decided_ahead_is_not_leased_once_it_no_longer_fits(cast: Cast) -> None:
    workers = cluster()
    job, rollout = turn_to_training(cast, workers)
    Machine.objects.filter(name="alpha").update(tags=["rollout"])
    assert workers["alpha"].heartbeat(phases=[ended(rollout)]).orders == []

    Machine.objects.filter(name="alpha").update(tags=["rollout", "train"])
    Job.objects.filter(id=job.id).update(published_batch=job.spec["train"]["num_updates"])
    assert workers["alpha"].heartbeat(phases=[ended(rollout)]).orders == []


def test_a_job_without_machines_says_why_it_waits(cast: Cast) -> None:
    worker_make("beta", "rollout").heartbeat()
    job = cast.job()
    assert cycle() == []
    job.refresh_from_db()
    assert job.state == JobState.QUEUED
    assert "role train: train" in job.waiting_reason
    assert "role agent: agent" in job.waiting_reason


def test_cancelling_drains_and_ends_a_job(cast: Cast) -> None:
    cluster()
    job = cast.job()
    cycle()
    activate()
    cycle()
    job_desire(job_id=job.id, desired=DesiredJobState.CANCEL, reason="enough", author="user:olga")
    cycle()
    assert set(live().values()) == {"rollout draining", "agent draining"}
    for phase in Phase.objects.filter(state=PhaseState.DRAINING):
        phase_move(phase_id=phase.id, to=PhaseState.ENDED, reason="handed over", author="machine")
    cycle()
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED
    assert job.ended_at is not None


def test_a_silent_machine_is_evicted_by_the_servers_clock(cast: Cast) -> None:
    cluster()
    job = cast.job()
    cycle()
    activate()
    past = timezone.now() - timedelta(seconds=HEARTBEAT_LIMIT_S + 1)
    MachineHeartbeat.objects.filter(machine__name="beta").update(received_at=past)
    assert decide(snapshot_load(may_evict=False)).decisions != decide(snapshot_load()).decisions
    cycle()
    assert Phase.objects.get(machine__name="beta").reason == "beta sends no heartbeats"
    job.refresh_from_db()
    assert job.num_failures == 0, "a machine that is lost is no failure of the job"


def test_a_plan_that_lost_a_race_changes_nothing(cast: Cast) -> None:
    cluster()
    cast.job()
    plan: Plan = decide(snapshot_load())
    plan_apply(plan)
    before = list(Phase.objects.order_by("id").values_list("id", "state", "fence"))
    assert plan_apply(plan) == []
    assert list(Phase.objects.order_by("id").values_list("id", "state", "fence")) == before
    assert set(Machine.objects.values_list("last_fence", flat=True)) == {1}


def cannot_run_engines(machine: Machine) -> None:
    problems = {"embedded": "torch is not installed"}
    said = {"engine_kinds": [], "engine_problems": problems}
    MachineHeartbeat.objects.filter(machine=machine).update(capabilities=said)


def is_granted_to_others(machine: Machine) -> None:
    other = Project.objects.create(slug="others", name="others")
    PoolGrant.objects.create(pool=machine.pool, project=other)


def is_unheard(machine: Machine) -> None:
    long_ago = timezone.now() - timedelta(seconds=2 * HEARTBEAT_LIMIT_S)
    MachineHeartbeat.objects.filter(machine=machine).update(received_at=long_ago)


@pytest.mark.parametrize("change", [cannot_run_engines, is_granted_to_others, is_unheard])
def test_a_lease_repeats_all_checks_of_the_decision_on_locked_rows(
    cast: Cast, change: Callable[[Machine], None]
) -> None:
    workers = cluster()
    cast.job()
    plan = decide(snapshot_load())
    change(workers["beta"].machine)

    plan_apply(plan)

    assert "beta" not in live()


def test_the_fence_of_a_train_phase_exceeds_every_earlier_one_of_the_job(cast: Cast) -> None:
    cluster()
    worker_make("delta", "train").heartbeat()
    job = cast.job()
    Job.objects.filter(id=job.id).update(train_fence=7)
    cycle()
    activate()
    cycle()
    assert Phase.objects.get(role="train").fence == 8


def test_a_snapshot_takes_few_queries_however_large_the_cluster(cast: Cast) -> None:
    for number in range(10):
        worker_make(f"m{number}", "rollout").heartbeat()
    for _ in range(5):
        cast.job()
    with CaptureQueriesContext(connection) as queries:
        snapshot = snapshot_load()
    assert len(queries) <= MAX_QUERIES
    assert (len(snapshot.machines), len(snapshot.jobs)) == (10, 5)


DISK_IS_FULL = (
    "cannot write weights of version 1: no space left in /weights; free space or change ARTIFACT_ROOT"
)


def test_fault_4_a_job_that_cannot_write_its_weights_pauses_with_that_reason_and_others_continue(
    cast: Cast,
) -> None:
    workers = cluster()
    job, other = cast.job(), cast.job(name="other")
    ready_groups(job, 16)
    num_trained = 0
    for _ in range(10 * MAX_TRIES):
        cycle()
        activate()
        num_trained += train_phase_fail(workers, job)
        failures_age(LONGEST_RETRY_S + 1.0)
        job.refresh_from_db()
        if job.state == JobState.PAUSED:
            break
        assert num_trained < 2 or DISK_IS_FULL in job.state_reason, "said while it still tries"
    assert num_trained == MAX_TRIES
    assert DISK_IS_FULL in job.state_reason
    cycle()
    other.refresh_from_db()
    assert other.state in (JobState.STARTING, JobState.RUNNING)
    assert set(Phase.objects.filter(state__in=LIVE_PHASE_STATES).values_list("job", flat=True)) == {other.id}

    job_desire(job_id=job.id, desired=DesiredJobState.RUN, reason="there is room again", author="user:ada")
    cycle()
    job.refresh_from_db()
    assert (job.state, job.num_failures, job.pause_reason) == (JobState.QUEUED, 0, "")
    cycle()
    job.refresh_from_db()
    assert job.desired == DesiredJobState.RUN, "failures before it was resumed are not held against it"


def failures_age(by_s: float) -> None:
    """Let time pass for the failures so far, and for all that is over."""
    past = F("ended_at") - timedelta(seconds=by_s)
    Phase.objects.filter(state__in=[PhaseState.FAILED, PhaseState.ENDED]).update(ended_at=past)


def train_phase_fail(workers: dict[str, Worker], job: Job) -> int:
    """Report the job's train phase, if there is one, as failed by its machine, as a supervisor
    does."""
    phase = Phase.objects.filter(job=job, role="train", state__in=LIVE_PHASE_STATES).first()
    if phase is None:
        for draining in Phase.objects.filter(state=PhaseState.DRAINING):
            phase_move(phase_id=draining.id, to=PhaseState.ENDED, reason="handed over", author="machine")
        return 0
    worker = workers[phase.machine.name]
    Phase.objects.filter(id=phase.id).update(boot_id=worker.boot_id)
    worker.heartbeat(
        phases=[
            PhaseReport(phase_id=phase.id, fence=phase.fence, state=PhaseState.FAILED, reason=DISK_IS_FULL)
        ]
    )
    return 1
