"""A heartbeat is one statement; what it brings is applied under a lock, once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import LedgerInterval
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import EngineReport, Heartbeat, Interval, PhaseReport
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, Worker, phase_make, worker_make
from tests.fixtures.processes import until


def serving(phase: Phase, **fields: Any) -> PhaseReport:
    engine = EngineReport(replica=0, endpoint="http://127.0.0.1:9", served_version=0, num_in_flight=3)
    engines = [msgspec.structs.replace(engine, **fields)]
    return PhaseReport(phase_id=phase.id, fence=phase.fence, state=PhaseState.ACTIVE, endpoints=engines)


def idle(seq: int, start_s: float, end_s: float) -> Interval:
    return Interval(seq=seq, state=LedgerState.IDLE, cause=IdleCause.NO_JOB, start_s=start_s, end_s=end_s)


def statements(call: Callable[[], object]) -> list[str]:
    with CaptureQueriesContext(connection) as queries:
        call()
    return [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]


def test_a_quiet_heartbeat_stores_what_it_tells_by_one_statement(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)
    beta.heartbeat(phases=[serving(phase)])
    MachineHeartbeat.objects.update(received_at="2026-01-01T00:00Z")
    beta.monotonic_s += 60.0

    told = {"open_state": LedgerState.IDLE, "open_cause": IdleCause.NO_REQUESTS, "open_since_s": 99.5}
    (sent,) = statements(lambda: beta.heartbeat(phases=[serving(phase)], **told))

    row = MachineHeartbeat.objects.get(machine=beta.machine)
    assert "scheduling_phase" in sent
    assert (row.open_state, row.open_cause, row.num_in_flight) == ("idle", "no_requests", 3)
    assert row.open_since_at == row.anchor_at + timedelta(seconds=99.5)
    assert row.received_at.year > 2025
    assert row.received_at.month > 1, "seen now"
    beta.heartbeat()
    forgotten = MachineHeartbeat.objects.values_list("open_state", "open_since_at", "num_in_flight").get()
    assert forgotten == ("", None, None)


def test_a_quiet_heartbeat_sees_what_changed_since_the_last_one(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)
    beta.heartbeat(phases=[serving(phase)])
    PolicyVersion.objects.create(
        id=new_id(), project_id=job.project_id, job=job, version=1, uri="file:///one"
    )
    Phase.objects.filter(id=phase.id).update(desired_version=1, num_batches=7)
    Job.objects.filter(id=job.id).update(latest_version=1)

    reply = beta.heartbeat(phases=[serving(phase)])

    assert (reply.orders[0].weights.version, reply.orders[0].weights.uri) == (1, "file:///one")
    assert reply.orders[0].num_batches == 7
    assert reply.warm_processes[0].weights == reply.orders[0].weights


def test_a_heartbeat_with_intervals_needs_few_statements(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)
    beta.heartbeat(phases=[serving(phase)])
    span = Interval(
        seq=0, state=LedgerState.SERVING, job_id=job.id, start_s=98.0, end_s=99.0, mean_in_flight=2.5
    )

    sent = statements(lambda: beta.heartbeat(phases=[serving(phase)], intervals=[span]))

    assert len(sent) == 3, "lock, store and see, insert"
    (row,) = LedgerInterval.objects.filter(machine=beta.machine)
    assert (row.job_id, row.project_id, row.mean_in_flight) == (job.id, job.project_id, 2.5)
    assert row.num_slots == job.resolved_spec.rollout.max_num_seqs


def test_an_interval_of_a_deleted_job_is_stored_without_it(cast: Cast) -> None:
    beta = worker_make("beta", "rollout")
    span = Interval(seq=0, state=LedgerState.SERVING, job_id=uuid4(), start_s=98.0, end_s=99.0)

    assert beta.heartbeat(intervals=[span]).num_intervals_acked == 1

    (row,) = LedgerInterval.objects.filter(machine=beta.machine)
    assert (row.state, row.job_id, row.project_id, row.num_slots) == ("serving", None, None, None)


def test_a_machine_that_was_deleted_meanwhile_is_told_so(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    beta = worker_make("beta", "rollout")
    beta.heartbeat()
    Machine.objects.filter(id=beta.machine.id).delete()
    spans: list[list[Interval]] = [[], [idle(0, 1.0, 2.0)]]
    for intervals in spans:
        body = msgspec.json.encode(Heartbeat(boot_id=beta.boot_id, monotonic_s=101.0, intervals=intervals))
        assert beta.post("heartbeat", body).status_code == 410


def locks_waited_for() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


def beat_elsewhere(worker: Worker, **fields: Any) -> int:
    try:
        return worker.heartbeat(**fields).num_intervals_acked
    finally:
        connections.close_all()


@pytest.mark.django_db(transaction=True)
def test_a_heartbeat_that_is_repeated_while_the_first_is_being_stored_stores_nothing_twice(
    cast: Cast,
) -> None:
    """A gap in the ledger is filled by rows without a number, which no index would keep apart."""
    beta = worker_make("beta", "rollout")
    beta.heartbeat(intervals=[idle(0, 10.0, 20.0)])
    repeated = {"intervals": [idle(1, 50.0, 60.0)]}

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            beta.heartbeat(**repeated)
            second = threads.submit(beat_elsewhere, beta, **repeated)
            until(locks_waited_for, what="the repeat waits for the first")
        assert second.result() == 2

    rows = list(LedgerInterval.objects.filter(machine=beta.machine).order_by("started_at"))
    assert [(row.state, row.seq) for row in rows] == [("idle", 0), ("down", None), ("idle", 1)]


@pytest.mark.django_db(transaction=True)
def test_a_report_of_a_boot_that_is_over_moves_no_phase_of_the_next(cast: Cast) -> None:
    """The old supervisor's last word waits for the row while the new one's first is stored."""
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)
    beta.heartbeat(phases=[serving(phase)])
    old = Worker(beta.machine, beta.secret, beta.boot_id)
    beta.reboot()

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            beta.heartbeat()
            late = threads.submit(beat_elsewhere, old, phases=[serving(phase, endpoint="http://127.0.0.1:8")])
            until(locks_waited_for, what="the old boot's report waits")
        late.result()

    phase.refresh_from_db()
    assert (phase.state, phase.engines) == ("failed", [])
