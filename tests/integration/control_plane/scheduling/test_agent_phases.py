"""Agent phases of several jobs on one machine, with PostgreSQL: leases, fences, heartbeats, constraints."""

import time
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.common.database import clock
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.services.leases import phase_lease, phase_succeed
from seamlessflow.control_plane.trajectories.models import Session
from seamlessflow.control_plane.trajectories.selectors.audit import job_audit
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import Capabilities, PhaseReport
from seamlessflow.core.scheduling.decisions import Lease
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, Worker, group_make, phase_make, worker_make
from tests.integration.control_plane.scheduling.test_scheduler_database import activate, cluster, cycle


def with_slots(name: str, *tags: str, slots: int) -> Worker:
    worker = worker_make(name, *tags)
    capabilities = Capabilities(
        num_cores=1, memory_bytes=1, engine_kinds=["embedded"], rendezvous="here:1", agent_slots=slots
    )
    worker.heartbeat(capabilities=capabilities)
    return worker


def lease_of(job: Job, worker: Worker, role: Role = Role.AGENT) -> Lease:
    machine = worker.machine
    return Lease(machine_id=machine.id, machine=machine.name, job_id=job.id, role=role, reason="test")


def on(worker: Worker) -> list[tuple[str, str, str]]:
    phases = Phase.objects.filter(machine=worker.machine).order_by("fence")
    return [(phase.job.name, phase.role, phase.state) for phase in phases.select_related("job")]


def test_agents_of_two_jobs_share_a_machine_and_end_by_themselves(cast: Cast) -> None:
    workers = cluster()
    gamma = workers["gamma"]
    gamma.heartbeat(capabilities=Capabilities(num_cores=1, memory_bytes=1, agent_slots=2))
    first, second, third = (cast.job(name=name) for name in ("first", "second", "third"))

    for _ in range(2):
        cycle()
        activate()

    assert on(gamma) == [("first", "agent", "active"), ("second", "agent", "active")]
    third.refresh_from_db()
    assert "the 2 slots of gamma are for agents of other jobs" in third.waiting_reason
    reply = gamma.heartbeat()
    assert {order.job_id for order in reply.orders} == {first.id, second.id}
    assert len({order.fence for order in reply.orders}) == 2
    warm = {process.job_id for process in reply.warm_processes if process.role is Role.AGENT}
    assert warm >= {first.id, second.id}

    order = next(order for order in reply.orders if order.job_id == first.id)
    stale = PhaseReport(phase_id=order.phase_id, fence=order.fence + 1, state=PhaseState.FAILED)
    gamma.heartbeat(phases=[stale])
    assert on(gamma)[0][2] == "active", "another phase's fence changes nothing"
    failed = PhaseReport(phase_id=order.phase_id, fence=order.fence, state=PhaseState.FAILED, reason="killed")
    (left,) = gamma.heartbeat(phases=[failed]).orders
    assert left.job_id == second.id
    assert on(gamma) == [("first", "agent", "failed"), ("second", "agent", "active")]
    second.refresh_from_db()
    assert second.num_failures == 0


def test_a_lease_begins_after_the_phase_before_though_processes_read_the_clock_differently(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process samples the database's clock, and its sample is some ten milliseconds off on a busy host."""
    worker, job = with_slots("a", "agent", slots=1), cast.job(name="job")

    def sample_off_by(offset_s: float) -> None:
        at = clock.database_read() + timedelta(seconds=offset_s)
        monkeypatch.setattr(clock, "_sample", clock._Sample(at, time.monotonic()))

    assert phase_lease(lease_of(job, worker)) is not None
    first = Phase.objects.get(job=job)
    sample_off_by(0.5)
    assert phase_move(phase_id=first.id, to=PhaseState.FAILED, reason="killed", author="test")
    sample_off_by(-0.5)
    assert phase_lease(lease_of(job, worker)) is not None

    first, second = Phase.objects.filter(job=job).order_by("fence")
    assert first.ended_at is not None
    assert second.leased_at >= first.ended_at
    (check,) = (check for check in job_audit(job=job).checks if check.name == "one_live_phase_per_machine")
    assert check.ok


def test_a_lease_counts_the_slots_under_the_lock_of_the_machine(cast: Cast) -> None:
    worker, old = with_slots("a", "agent", slots=2), with_slots("old", "agent", slots=1)
    jobs = [cast.job(name=f"job {n}") for n in range(3)]
    assert phase_lease(lease_of(jobs[0], worker)) is not None
    assert phase_lease(lease_of(jobs[0], worker)) is None, "a job has one agent phase on a machine"
    assert phase_lease(lease_of(jobs[1], worker)) is not None
    assert phase_lease(lease_of(jobs[2], worker)) is None, "all slots are taken"
    assert phase_lease(lease_of(jobs[2], old)) is not None
    assert phase_lease(lease_of(jobs[1], old)) is None, "its slot is taken"
    fences = Phase.objects.filter(machine=worker.machine).order_by("fence").values_list("fence", flat=True)
    assert list(fences) == [1, 2]
    assert Machine.objects.get(name="a").last_fence == 2


def test_a_job_has_agents_on_as_many_machines_as_its_spec_allows(cast: Cast) -> None:
    workers = [with_slots(name, "agent", slots=4) for name in "abc"]
    environment = {"name": "calculator", "tasks": str(cast.tasks), "num_machines": {"max": 2}}
    job = cast.job(environment=environment)
    assert [phase_lease(lease_of(job, worker)) is not None for worker in workers] == [True, True, False]
    leaving = Phase.objects.get(machine=workers[0].machine)
    assert phase_move(phase_id=leaving.id, to=PhaseState.DRAINING, reason="test", author="test")
    assert phase_lease(lease_of(job, workers[2])) is not None, "agents that leave are followed by others"


def test_the_database_refuses_a_second_engine_and_second_agents_of_a_job(cast: Cast) -> None:
    worker = with_slots("all", "agent", "rollout", "train", slots=4)
    first, second = cast.job(name="first"), cast.job(name="second")
    phase_make(first, worker.machine, Role.ROLLOUT)
    phase_make(first, worker.machine, Role.AGENT)
    phase_make(second, worker.machine, Role.AGENT)
    for job, role in ((second, Role.ROLLOUT), (second, Role.TRAIN), (first, Role.AGENT)):
        with pytest.raises(IntegrityError), transaction.atomic():
            phase_make(job, worker.machine, role)


def test_an_engine_is_followed_by_what_was_decided_although_agents_came_later(cast: Cast) -> None:
    worker = with_slots("all", "agent", "rollout", "train", slots=4)
    job, other = cast.job(is_running=True), cast.job(name="other")
    assert phase_lease(lease_of(job, worker, Role.ROLLOUT)) is not None
    engine = Phase.objects.get(role=Role.ROLLOUT)
    fields = {"next_role": "train", "next_num_batches": 1, "next_reason": "a batch is ready"}
    assert phase_move(phase_id=engine.id, to=PhaseState.DRAINING, reason="test", author="test", fields=fields)
    assert phase_lease(lease_of(other, worker)) is not None
    report = PhaseReport(phase_id=engine.id, fence=engine.fence, state=PhaseState.ENDED)

    orders = worker.heartbeat(phases=[report]).orders

    assert {(order.role, order.fence) for order in orders} == {(Role.AGENT, 2), (Role.TRAIN, 3)}
    job.refresh_from_db()
    assert job.train_fence == 3
    assert not phase_succeed(phase_id=engine.id, fence=engine.fence, machine_id=worker.machine.id), (
        "it has one"
    )


def test_a_machine_says_that_it_waits_for_a_gang_although_it_runs_agents(cast: Cast) -> None:
    worker = with_slots("all", "agent", "rollout", "train", slots=4)
    gang = cast.job(is_running=True, train={"num_updates": 2, "num_machines": 2})
    other = cast.job(name="other")
    assert phase_lease(lease_of(gang, worker, Role.ROLLOUT)) is not None
    engine = Phase.objects.get(role=Role.ROLLOUT)
    Phase.objects.filter(id=engine.id).update(next_role="train")
    assert phase_lease(lease_of(other, worker)) is not None
    report = PhaseReport(phase_id=engine.id, fence=engine.fence, state=PhaseState.ENDED)
    assert worker.heartbeat(phases=[report]).awaits_gang_of == gang.id


def test_a_snapshot_holds_engines_and_agents_and_how_many_machines_the_agents_could_use(cast: Cast) -> None:
    worker = with_slots("all", "agent", "rollout", slots=3)
    environment = {"name": "calculator", "tasks": str(cast.tasks), "num_machines": {"min": 2, "max": 4}}
    job = cast.job(environment=environment, rollout={"group_size": 8, "max_concurrent_sessions": 10})
    other = cast.job(name="other")
    for one, role in ((job, Role.ROLLOUT), (other, Role.AGENT), (job, Role.AGENT)):
        phase_make(one, worker.machine, role)
    snapshot = snapshot_load()
    (machine,) = snapshot.machines
    assert machine.agent_slots == 3
    assert [(phase.job_id, phase.role) for phase in machine.phases] == [
        (job.id, Role.ROLLOUT), (job.id, Role.AGENT), (other.id, Role.AGENT),
    ]  # fmt: skip
    assert (snapshot.jobs[0].agents_least, snapshot.jobs[0].agents_wanted) == (2, 2)
    assert (snapshot.jobs[1].agents_least, snapshot.jobs[1].agents_wanted) == (1, 1)

    group = group_make(job, 0)
    for slot in range(7):
        Session.objects.create(
            id=uuid4(), project_id=job.project_id, job=job, group=group, slot=slot,
            month=timezone.now().date().replace(day=1), key_digest=uuid4().bytes, opened_at=timezone.now(),
        )  # fmt: skip
    # A machine of ten sessions has no room for a group of eight from three sessions on.
    assert (snapshot_load().jobs[0].agents_wanted, snapshot_load().jobs[0].agents_kept) == (3, 4)


def test_the_audit_lets_agents_overlap_and_nothing_else(cast: Cast) -> None:
    worker = with_slots("all", "agent", "rollout", "train", slots=4)
    job, other = cast.job(), cast.job(name="other")
    engine = phase_make(job, worker.machine, Role.ROLLOUT)
    for one in (other, job):
        phase_make(one, worker.machine, Role.AGENT)

    def is_kept() -> bool:
        checks = {check.name: check.ok for check in job_audit(job).checks}
        return checks["one_live_phase_per_machine"]

    assert is_kept()
    Phase.objects.filter(id=engine.id).update(state=PhaseState.ENDED, ended_at=timezone.now())
    trainer = phase_make(job, worker.machine, Role.TRAIN)
    Phase.objects.filter(id=trainer.id).update(leased_at=engine.leased_at)
    assert not is_kept()
