"""Several jobs on one fleet, with PostgreSQL: shares, hand-overs from job to job, turns that gateways count, quotas."""

from django.utils import timezone

from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.services.leases import phase_succeed, plan_apply
from seamlessflow.control_plane.trajectories.models import Gateway
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PhaseState
from seamlessflow.core.protocol.worker import PhaseReport
from seamlessflow.core.scheduling.decisions import NextPhase, Plan, SetNext
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, Worker, worker_make
from tests.integration.control_plane.scheduling.test_scheduler_database import activate, cluster, cycle, live


def two_jobs(cast: Cast) -> tuple[dict[str, Worker], Job, Job]:
    """Return machines that the first job holds, and a second job that has just come."""
    workers = cluster() | {"delta": worker_make("delta", "agent")}
    workers["delta"].heartbeat()
    first = cast.job()
    cycle()
    activate()
    cycle()
    return workers, first, cast.job(name="second")


def gateway(number: int, turns: dict[Job, int] | None) -> None:
    told = None if turns is None else {str(job.id): num for job, num in turns.items()}
    Gateway.objects.create(
        name=f"http://g{number}", public_url=f"http://g{number}", seen_at=timezone.now(), turns=told
    )


def test_fault_6_a_machine_goes_from_one_job_to_the_other_with_the_answer_to_one_heartbeat(
    cast: Cast,
) -> None:
    workers, first, second = two_jobs(cast)
    assert live() == {"alpha": "rollout active", "beta": "rollout active", "delta": "agent active"}

    cycle()

    (leaving,) = Phase.objects.filter(state=PhaseState.DRAINING)
    assert (leaving.next_role, leaving.next_job_id) == (Role.ROLLOUT, second.id)
    assert "another job needs the machine to roll out" in leaving.reason
    worker = workers[leaving.machine.name]
    worker.heartbeat()
    report = PhaseReport(phase_id=leaving.id, fence=leaving.fence, state=PhaseState.ENDED)
    (order,) = worker.heartbeat(phases=[report]).orders
    assert (order.job_id, order.role) == (second.id, Role.ROLLOUT)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, second.state) == (JobState.RUNNING, JobState.STARTING)
    assert second.admitted_at is not None


def test_what_follows_a_phase_can_change_until_it_has_ended(cast: Cast) -> None:
    _, _, second = two_jobs(cast)
    phase = Phase.objects.get(machine__name="alpha")
    then = NextPhase(role=Role.TRAIN, job_id=second.id, num_batches=1, reason="a batch is ready")
    plan = Plan((SetNext(phase_id=phase.id, machine="alpha", then=then, reason=then.reason),), {})

    plan_apply(plan)

    phase.refresh_from_db()
    assert (phase.next_role, phase.next_job_id, phase.next_num_batches) == ("train", second.id, 1)
    (seen,) = [machine.phase for machine in snapshot_load().machines if machine.name == "alpha"]
    assert seen is not None
    assert seen.then == then
    Phase.objects.filter(id=phase.id).update(next_role="")
    phase_move(phase_id=phase.id, to=PhaseState.ENDED, reason="done", author="machine")
    plan_apply(plan)
    phase.refresh_from_db()
    assert phase.next_role == ""


def test_engines_are_wanted_for_the_turns_that_all_gateways_count(cast: Cast) -> None:
    busy = cast.job(rollout={"max_num_seqs": 4})
    idle = cast.job()

    def wanted() -> list[int | None]:
        return [job.engines_wanted for job in snapshot_load().jobs]

    assert wanted() == [None, None], "without gateways nobody counts"
    gateway(1, {busy: 5})
    assert wanted() == [2, 0]
    gateway(2, {busy: 4})
    assert wanted() == [3, 0]
    gateway(3, None)
    assert wanted() == [None, None], "an older gateway does not count"
    assert idle.state == JobState.QUEUED


def test_a_job_whose_turns_have_ended_leaves_its_machines_to_the_other(cast: Cast) -> None:
    _, first, second = two_jobs(cast)
    Job.objects.filter(id=first.id).update(published_batch=1)
    gateway(1, {first: 0, second: 1000})

    cycle()

    leaving = Phase.objects.filter(state=PhaseState.DRAINING)
    assert {phase.machine.name: phase.next_job_id for phase in leaving} == {
        "alpha": second.id,
        "beta": second.id,
    }
    first.refresh_from_db()
    assert first.state == JobState.RUNNING


def test_a_job_waits_while_its_project_holds_as_many_machines_as_it_may(cast: Cast) -> None:
    _, _, second = two_jobs(cast)
    Project.objects.filter(id=second.project_id).update(machine_quota=3)
    cycle()
    second.refresh_from_db()
    assert second.state == JobState.QUEUED
    assert second.waiting_reason == "its project holds all of the 3 machines that it may hold"

    Project.objects.filter(id=second.project_id).update(machine_quota=4)
    cycle()
    second.refresh_from_db()
    assert second.state == JobState.STARTING


def test_what_follows_a_phase_takes_no_project_beyond_its_quota(cast: Cast) -> None:
    """It is promised while the project still holds what it is to give up, and leased without the scheduler."""
    _, first, second = two_jobs(cast)
    promised = Phase.objects.get(machine__name="alpha")
    Phase.objects.filter(id=promised.id).update(next_role=Role.ROLLOUT.value, next_job=first)
    num_held = Phase.objects.filter(project_id=first.project_id, state__in=LIVE_PHASE_STATES).count()
    assert phase_move(phase_id=promised.id, to=PhaseState.ENDED, reason="handed over", author="machine")

    def succeed() -> bool:
        return phase_succeed(phase_id=promised.id, fence=promised.fence, machine_id=promised.machine_id)

    Project.objects.filter(id=first.project_id).update(machine_quota=num_held - 1)
    assert not succeed()
    Project.objects.filter(id=first.project_id).update(machine_quota=num_held)
    assert succeed()
    assert second.project_id == first.project_id


def test_a_reason_for_waiting_names_jobs_of_the_same_project_only(cast: Cast) -> None:
    cluster()
    cast.job(name="secret plans")
    cycle()
    of_ours = cast.job()
    of_others = cast.job()
    Job.objects.filter(id=of_others.id).update(project_id=cast.outsider.project.id)
    cycle()
    of_ours.refresh_from_db()
    of_others.refresh_from_db()
    assert 'gamma is held by the job "secret plans"' in of_ours.waiting_reason
    assert "gamma is held by another job" in of_others.waiting_reason
