"""When the leader decides, what wakes it, and what its snapshot costs: nothing is decided twice for
the same facts, statements are prepared, and a lease reads what the leader reads."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from unittest import mock

import pytest
from django.db import connection
from django.utils import timezone

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat, PoolGrant
from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.common.services import SCHEDULER_CHANNEL, scheduler_notify
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.services.versions import version_publish
from seamlessflow.control_plane.scheduling.leading import leader as leader_module
from seamlessflow.control_plane.scheduling.leading.leader import POLL_S, Leader, database_connect
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.selectors.snapshot_rows import (
    job_views,
    machine_views,
    machine_views_of,
)
from seamlessflow.control_plane.scheduling.services.judgements import machine_quarantine
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.worker import EngineReport, PhaseReport
from seamlessflow.core.scheduling.blame.health import Patience
from seamlessflow.core.scheduling.decisions import Plan, QuarantineMachine
from seamlessflow.core.scheduling.passes.multiplexing import EMPTY_TURN_GRACE_S
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, Worker, phase_make, publication_of, worker_make
from tests.integration.control_plane.scheduling.test_control_gangs import orders_in_training
from tests.integration.control_plane.scheduling.test_scheduler_database import (
    activate,
    cluster,
    live,
    ready_groups,
)

PATIENCE = Patience(since_s=float("-inf"))


@pytest.fixture
def leader() -> Iterator[Leader]:
    made = Leader(stop=threading.Event(), companion=contextlib.nullcontext)
    with mock.patch.object(made._wake_up_sender, "send"):
        yield made
    made._wake_up_sender.close()


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of all decisions that the leader makes."""
    plans: list[Plan] = []

    def told(rule: Callable[..., Plan]) -> Callable[..., Plan]:
        def deciding(snapshot: object) -> Plan:
            plans.append(rule(snapshot))
            return plans[-1]

        return deciding

    monkeypatch.setattr(leader_module, "decide", told(decide))
    return plans


def come_to_rest(leader: Leader, decided: list[Plan]) -> None:
    """Let the leader look until it decides no more; forget what it decided."""
    for _ in range(10):
        num_before = len(decided)
        leader._cycle(PATIENCE)
        if len(decided) == num_before:
            decided.clear()
            return
    raise AssertionError(f"it still decides: {decided[-1]}")


def running_job(cast: Cast, leader: Leader, decided: list[Plan]) -> Job:
    """Return a job with active phases, about which the leader has nothing to decide."""
    cluster()
    job = cast.job(rollout={"groups_per_batch": 2, "group_size": 2})
    leader._cycle(PATIENCE)
    activate()
    come_to_rest(leader, decided)
    return job


def test_the_same_facts_are_decided_once(cast: Cast, leader: Leader, decided: list[Plan]) -> None:
    job = running_job(cast, leader, decided)
    MachineHeartbeat.objects.update(received_at=timezone.now())  # machines were heard again, as each second
    leader._cycle(PATIENCE)
    assert decided == []

    ready_groups(job, 2)
    leader._cycle(PATIENCE)
    assert live()["alpha"] == "rollout draining"


def test_a_job_that_lacked_machines_for_a_while_is_owed_one_and_the_next_snapshot_says_so(
    cast: Cast, leader: Leader, decided: list[Plan]
) -> None:
    job = running_job(cast, leader, decided)
    leader._differences = {job.id: 2.0}  # machines, since two seconds
    leader._looked_at_s = time.monotonic() - 2.0
    leader._cycle(PATIENCE)
    assert snapshot_load().jobs[0].owed == 0
    leader._differences = {job.id: 2.0}
    leader._looked_at_s = time.monotonic() - 2.0
    leader._cycle(PATIENCE)
    assert snapshot_load().jobs[0].owed == 1
    leader._cycle(PATIENCE)
    assert decided, "a job that is owed a machine is another fact"
    assert leader._differences == {}, "nobody else holds machines"


def test_a_decision_that_lost_its_race_is_made_again(cast: Cast, leader: Leader, decided: list[Plan]) -> None:
    cluster()
    cast.job()
    with mock.patch.object(leader_module, "plan_apply", return_value=[]):
        leader._cycle(PATIENCE)
    leader._cycle(PATIENCE)
    assert decided[0] == decided[1]
    assert len(live()) == 3


def test_a_turn_that_finds_no_batch_ends_although_no_fact_changes(
    cast: Cast, leader: Leader, decided: list[Plan]
) -> None:
    running_job(cast, leader, decided)
    Phase.objects.filter(machine__name="alpha").update(role="train", active_at=timezone.now())
    come_to_rest(leader, decided)
    rested = leader._quiet
    assert rested is not None

    due_s = rested.until_s - time.monotonic()
    assert 0 < due_s <= EMPTY_TURN_GRACE_S
    Phase.objects.filter(machine__name="alpha").update(
        active_at=timezone.now() - timedelta(seconds=EMPTY_TURN_GRACE_S)
    )
    leader._cycle(PATIENCE)
    assert decided == [], "an age is no fact"
    leader._quiet = replace(rested, until_s=time.monotonic())
    leader._cycle(PATIENCE)
    assert live()["alpha"] == "train draining"


def test_a_machine_that_falls_silent_is_noticed_by_looking(
    cast: Cast, leader: Leader, decided: list[Plan]
) -> None:
    running_job(cast, leader, decided)
    long_ago = timezone.now() - timedelta(seconds=16)
    MachineHeartbeat.objects.filter(machine__name="beta").update(received_at=long_ago)
    leader._cycle(PATIENCE)
    assert Phase.objects.get(machine__name="beta").state == PhaseState.FAILED


def test_a_reason_that_somebody_overwrote_is_written_again(
    cast: Cast, leader: Leader, decided: list[Plan]
) -> None:
    worker_make("beta", "rollout").heartbeat()
    job = cast.job()
    come_to_rest(leader, decided)
    job.refresh_from_db()
    reason = job.waiting_reason
    assert reason
    Job.objects.filter(id=job.id).update(waiting_reason="")
    leader._cycle(PATIENCE)
    job.refresh_from_db()
    assert job.waiting_reason == reason


# Machines, jobs with the failures of theirs, and judgements.
SNAPSHOT_TABLES = ("cluster_machine m", "jobs_job j", "scheduling_machinejudgement q")


def test_the_statements_of_a_snapshot_are_prepared_once(cast: Cast) -> None:
    for _ in range(6):
        snapshot_load()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT statement, generic_plans FROM pg_prepared_statements WHERE statement LIKE %s", ["%FROM %"]
        )
        kept = [
            num_plans
            for statement, num_plans in cursor.fetchall()
            if any(table in statement for table in SNAPSHOT_TABLES)
        ]
    assert len(kept) == 3
    assert min(kept) >= 3, "they are planned once, not for each cycle"


def test_a_lease_reads_a_machine_as_the_snapshot_does(cast: Cast) -> None:
    _, workers, orders = orders_in_training(cast)
    assert phase_move(phase_id=orders["beta"].phase_id, to=PhaseState.FAILED, reason="", author="test")
    worker_make("delta", "rollout")  # without a heartbeat
    Machine.objects.filter(name="beta").update(pool="ours", is_cordoned=True, is_draining=True)
    assert machine_quarantine(
        QuarantineMachine(
            machine_id=workers["beta"].machine.id, machine="beta", reason="it fails", num=2, backoff_s=60.0, fence=7
        ),
        author="test",
    )  # fmt: skip

    machines = machine_views()
    assert machine_views_of([machine.id for machine in machines]) == machines
    assert machine_views_of([machines[-1].id]) == machines[-1:]
    by_name = {machine.name: machine for machine in machines}
    assert [machine.name for machine in machines if not machine.is_healthy] == ["delta"]
    assert any(one.gang and one.gang.failure == "it failed" for view in machines for one in view.phases)
    beta, quarantine = by_name["beta"], by_name["beta"].quarantine
    assert (beta.pool, beta.is_cordoned, beta.is_draining, beta.judged_fence) == ("ours", True, True, 7)
    assert quarantine is not None
    assert (quarantine.reason, quarantine.num, quarantine.backoff_s) == ("it fails", 2, 60.0)
    assert not quarantine.is_over


def test_a_job_may_use_the_pools_of_its_project(cast: Cast) -> None:
    cast.job()
    assert [job.pools for job in job_views()] == [{"default"}]
    PoolGrant.objects.create(pool="ours", project=cast.owner.project)
    PoolGrant.objects.create(pool="default", project=cast.outsider.project)
    PoolGrant.objects.create(pool="theirs", project=cast.outsider.project)
    assert [job.pools for job in job_views()] == [{"ours"}]


@contextlib.contextmanager
def notices() -> Iterator[Callable[[], list[str]]]:
    """Yield a function that returns what the scheduler was told since its last call."""
    with database_connect() as session:
        session.execute(f"LISTEN {SCHEDULER_CHANNEL}")
        yield lambda: [notice.payload for notice in session.notifies(timeout=0.2)]


def engine_of(cast: Cast) -> tuple[Worker, Phase]:
    alpha = worker_make("alpha", "rollout")
    return alpha, phase_make(cast.job(is_running=True), alpha.machine, Role.ROLLOUT)


@pytest.mark.django_db(transaction=True)
def test_an_engine_that_serves_another_version_does_not_wake_the_scheduler(cast: Cast) -> None:
    alpha, phase = engine_of(cast)

    def report(version: int, num_in_flight: int = 0) -> PhaseReport:
        engine = EngineReport(
            replica=0, endpoint="http://engine", served_version=version, num_in_flight=num_in_flight
        )
        return PhaseReport(phase_id=phase.id, fence=phase.fence, state=PhaseState.ACTIVE, endpoints=[engine])

    with notices() as told:
        alpha.heartbeat()
        assert told() == ["heartbeat of alpha"], "a new boot may bring engines and fails old phases"
        alpha.heartbeat(phases=[report(0)])
        assert told() == [f"phase {phase.id} is active"]
        alpha.heartbeat(phases=[report(1)])
        alpha.heartbeat(phases=[report(1, num_in_flight=3)])
        assert told() == []
        assert Phase.objects.get(id=phase.id).served_version == 1


@pytest.mark.django_db(transaction=True)
def test_after_a_publication_the_scheduler_is_told_and_sends_doorbells_to_engines_behind(
    cast: Cast, leader: Leader, decided: list[Plan]
) -> None:
    alpha, phase = engine_of(cast)
    report = PhaseReport(
        phase_id=phase.id,
        fence=phase.fence,
        state=PhaseState.ACTIVE,
        endpoints=[EngineReport(replica=0, endpoint="http://engine", served_version=0)],
    )
    alpha.heartbeat(phases=[report])
    come_to_rest(leader, decided)
    train = phase_make(phase.job, worker_make("beta", "train").machine, Role.TRAIN)
    leader._wake_up_sender.send.reset_mock()  # type: ignore[attr-defined]
    with notices() as told:
        version_publish(claims=claims_of(train), publication=publication_of(phase.job, 1))
        assert told() == [f"version 1 of job {phase.job_id} was published"]
    leader._cycle(PATIENCE)
    (sent,) = leader._wake_up_sender.send.call_args_list  # type: ignore[attr-defined]
    assert (sent.args[0].machine, sent.args[0].phase_id) == ("alpha", phase.id)


def claims_of(phase: Phase) -> PhaseClaims:
    return PhaseClaims(
        phase_id=phase.id, job_id=phase.job_id, project_id=phase.project_id, machine_id=phase.machine_id,
        role=Role(phase.role), fence=phase.fence, expires_at_s=2**40,
    )  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_a_wait_ends_with_a_notice_and_covers_those_that_come_with_it(leader: Leader) -> None:
    with database_connect() as session:
        session.execute(f"LISTEN {SCHEDULER_CHANNEL}")
        for number in range(20):
            scheduler_notify(reason=f"fact {number}")
        began_s = time.monotonic()
        leader._wait(session)
        assert time.monotonic() - began_s < POLL_S / 2
        leader._wait(session)
        assert time.monotonic() - began_s >= POLL_S, "all twenty were one"
