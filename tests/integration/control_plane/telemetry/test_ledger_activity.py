"""How machines spent their time, over REST, checked by arithmetic on the intervals and lulls behind
it."""

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import LedgerInterval
from seamlessflow.control_plane.telemetry.selectors import ledger as ledger_selectors
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import Interval
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, Person, Worker, phase_make, worker_make

pytestmark = pytest.mark.django_db


def asked(person: Person, path: str) -> dict[str, Any]:
    response = person.call("GET", path)
    assert response.status_code == 200, response.content
    body: dict[str, Any] = json.loads(response.content)
    return body


def kinds(body: dict[str, Any]) -> list[tuple[str, str, float]]:
    return [(total["state"], total["cause"], round(total["duration_s"], 3)) for total in body["totals"]]


def machines_seconds(ledger: dict[str, Any], state: str) -> dict[str, float]:
    """Return the seconds of all machines of a job, by cause."""
    seconds: dict[str, float] = {}
    for total in (total for machine in ledger["machines"] for total in machine["totals"]):
        if total["state"] == state:
            seconds[total["cause"]] = seconds.get(total["cause"], 0.0) + total["duration_s"]
    return seconds


def reported(job: Job, worker: Worker) -> None:
    """Return an interval of 50 s, on a machine with 64 slots, that ends now."""
    pieces = [
        (LedgerState.SYNCING, None, 4.0, None),
        (LedgerState.SERVING, None, 10.0, 63.0),
        (LedgerState.IDLE, IdleCause.NO_REQUESTS, 3.0, None),
        (LedgerState.SERVING, None, 20.0, 1.0),
        (LedgerState.SWITCHING, None, 2.0, None),
        (LedgerState.TRAINING, None, 6.0, None),
        (LedgerState.IDLE, IdleCause.NO_BATCH, 5.0, None),
    ]
    intervals, end = [], worker.monotonic_s - 50.0
    for seq, (state, cause, duration, in_flight) in enumerate(pieces):
        intervals.append(
            Interval(
                seq=seq, state=state, cause=cause, job_id=job.id, start_s=end, end_s=end + duration,
                mean_in_flight=in_flight,
            )
        )  # fmt: skip
        end += duration
    worker.heartbeat(intervals=intervals)


def test_time_is_listed_in_one_order_and_one_request_does_not_make_a_machine_full(cast: Cast) -> None:
    job, alpha = cast.job(is_running=True), worker_make("alpha", "rollout", "train")
    reported(job, alpha)

    until = LedgerInterval.objects.latest("ended_at").ended_at.isoformat().replace("+", "%2B")
    body = asked(cast.owner, f"machines/{show_id(IdKind.MACHINE, alpha.machine.id)}/ledger?until={until}")

    assert kinds(body) == [
        ("serving", "full", 10.0),
        ("serving", "partly_filled", 20.0),
        ("training", "", 6.0),
        ("switching", "", 2.0),
        ("syncing", "", 4.0),
        ("idle", "no_requests", 3.0),
        ("idle", "no_batch", 5.0),
    ]
    assert sum(total["share"] for total in body["totals"]) == pytest.approx(1.0)
    assert body["productive_share"] == pytest.approx(36 / 50)
    assert body["occupancy"] == pytest.approx((63 * 10 + 1 * 20) / (64 * 30))


def lull_make(job: Job, began_at: datetime, ended_at: datetime | None) -> None:
    """Create a lull, as a release that records them does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('trajectory_lull') IS NOT NULL")
        if cursor.fetchone() == (True,):
            cursor.execute(
                "INSERT INTO trajectory_lull (id, project_id, job_id, began_at, ended_at) VALUES (%s, %s, %s, %s, %s)",
                [uuid4(), job.project_id, job.id, began_at, ended_at],
            )


def test_a_lull_of_the_job_makes_a_draining_tail(cast: Cast) -> None:
    job, alpha = cast.job(is_running=True), worker_make("alpha", "rollout")
    reported(job, alpha)
    other = cast.job()
    lonely = LedgerInterval.objects.get(mean_in_flight=1.0)
    for of, begin, end in [
        (job, lonely.started_at - timedelta(seconds=60), lonely.started_at - timedelta(seconds=40)),
        (job, lonely.started_at + timedelta(seconds=12), None),
        (other, lonely.started_at, lonely.ended_at),
    ]:
        lull_make(of, begin, end)

    body = asked(cast.owner, f"machines/{show_id(IdKind.MACHINE, alpha.machine.id)}/ledger")

    assert kinds(body)[:3] == [
        ("serving", "full", 10.0),
        ("serving", "partly_filled", 12.0),
        ("serving", "draining_tail", 8.0),
    ]


def test_the_time_of_a_job_excludes_what_its_machines_did_for_others(cast: Cast) -> None:
    job, other = cast.job(is_running=True), cast.job(is_running=True)
    workers = [worker_make("alpha", "rollout", "train"), worker_make("beta", "rollout", "train")]
    for worker, of in zip(workers, (job, other), strict=True):
        worker.heartbeat()
        phase_make(job, worker.machine, Role.ROLLOUT)
        reported(of, worker)
    started_at = LedgerInterval.objects.earliest("started_at").started_at
    Job.objects.filter(id=job.id).update(
        started_at=started_at, ended_at=LedgerInterval.objects.latest("ended_at").ended_at
    )

    path = f"jobs/{show_id(IdKind.JOB, job.id)}"
    ledger, summary = asked(cast.owner, f"{path}/ledger"), asked(cast.owner, f"{path}/summary")

    expected = {"full": 10.0, "partly_filled": 20.0}  # what beta served was for the other job
    assert machines_seconds(ledger, "serving") == pytest.approx(expected, abs=0.01)
    seconds = {(state, cause): duration for state, cause, duration in kinds(ledger)}
    mine = LedgerInterval.objects.filter(job=job)
    assert seconds["serving", "full"] == pytest.approx(
        sum((row.ended_at - row.started_at).total_seconds() for row in mine.filter(mean_in_flight=63.0)),
        abs=0.01,
    )
    assert seconds["other_jobs", ""] == pytest.approx(50.0, abs=0.01)
    assert ledger["productive_share"] == pytest.approx(36 / 100, abs=0.01)
    assert summary["time"] == {
        key: ledger[key] for key in ("productive_share", "occupancy", "waiting_per_slot", "totals")
    }
    assert next(iter(summary)) == "time"
    productive_s = [machine["productive_share"] * machine["window_s"] for machine in ledger["machines"]]
    assert productive_s == pytest.approx([36.0, 0.0])
    by_rows = [total for machine in ledger["machines"] for total in machine["totals"]]
    for state, cause, duration in kinds(ledger):
        rows = [row["duration_s"] for row in by_rows if (row["state"], row["cause"]) == (state, cause)]
        assert sum(rows) == pytest.approx(duration, abs=0.01), "together is the sum of the rows"


def test_a_machine_that_only_runs_agents_makes_no_job_productive(cast: Cast) -> None:
    """Its agents may all fail: it is busy all the same."""
    job = cast.job(is_running=True)
    alpha, gamma = worker_make("alpha", "rollout"), worker_make("gamma", "agent")
    now = database_now()
    Job.objects.filter(id=job.id).update(started_at=now - timedelta(seconds=90))
    for worker, role, span in (
        (alpha, Role.ROLLOUT, (LedgerState.IDLE, IdleCause.NO_REQUESTS, job.id)),
        (gamma, Role.AGENT, (LedgerState.RUNNING_AGENTS, None, None)),
    ):
        worker.heartbeat()
        phase = phase_make(job, worker.machine, role)
        Phase.objects.filter(id=phase.id).update(leased_at=now - timedelta(seconds=40))
        state, cause, job_id = span
        end = worker.monotonic_s
        pieces = [(end - 80.0, end - 60.0), (end - 60.0, end)]
        worker.heartbeat(
            intervals=[
                Interval(seq=seq, state=state, cause=cause, job_id=job_id, start_s=start, end_s=stop)
                for seq, (start, stop) in enumerate(pieces)
            ]
        )

    ledger = asked(cast.owner, f"jobs/{show_id(IdKind.JOB, job.id)}/ledger")

    assert ledger["productive_share"] == pytest.approx(0.0)
    rows = {machine["name"]: machine for machine in ledger["machines"]}
    assert [rows[name]["is_computing"] for name in ("alpha", "gamma")] == [True, False]
    agents = {total["state"]: total["duration_s"] for total in rows["gamma"]["totals"]}
    assert agents["running_agents"] == pytest.approx(60.0, abs=1.0)
    assert agents["other_jobs"] == pytest.approx(20.0, abs=1.0), "before the job's first phase there"


def test_what_a_machine_does_now_is_told_with_the_job_that_it_works_for(cast: Cast) -> None:
    """An engine that serves without a break has an open interval of up to ten seconds, which named no job."""
    job, worker = cast.job(is_running=True), worker_make("alpha", "rollout", "train")
    worker.heartbeat(open_state=LedgerState.IDLE, open_cause=IdleCause.NO_JOB, open_since_s=90.0)
    phase = phase_make(job, worker.machine, Role.ROLLOUT)
    path = f"machines/{show_id(IdKind.MACHINE, worker.machine.id)}/ledger"

    idle = asked(cast.owner, path)["intervals"][-1]
    assert (idle["state"], idle["job_id"]) == ("idle", None), "that began before the lease"

    Phase.objects.filter(id=phase.id).update(leased_at=database_now() - timedelta(seconds=20))
    worker.heartbeat(open_state=LedgerState.SERVING, open_since_s=95.0)
    serving = asked(cast.owner, path)["intervals"][-1]
    assert (serving["state"], serving["job_id"]) == ("serving", show_id(IdKind.JOB, job.id))
    hidden = asked(cast.outsider, path)["intervals"][-1]
    assert (hidden["state"], hidden["job_id"]) == ("serving", None)


def test_tokens_read_again_are_booked_against_the_job_that_got_the_machine(cast: Cast) -> None:
    holder, taker = cast.job(is_running=True), cast.job(is_running=True)
    machine = worker_make("alpha", "rollout", "train").machine
    ended_at = database_now()
    for num_tokens, role, next_job in ((5, Role.TRAIN, None), (30, Role.ROLLOUT, taker), (200, None, None)):
        phase = phase_make(holder, machine, Role.ROLLOUT)
        Phase.objects.filter(id=phase.id).update(
            state=PhaseState.ENDED,
            num_read_again_tokens=num_tokens,
            next_role=role or "",
            next_job=next_job,
            ended_at=ended_at,
        )

    counts = {
        job: asked(cast.owner, f"jobs/{show_id(IdKind.JOB, job.id)}/ledger")["num_read_again_tokens"]
        for job in (holder, taker)
    }

    assert counts == {holder: 5, taker: 30}, "nobody took the machine of the last phase"


def test_trained_tokens_per_second_is_the_sum_of_tokens_over_the_time(cast: Cast) -> None:
    job = cast.job(is_running=True)
    path = f"jobs/{show_id(IdKind.JOB, job.id)}/summary"
    assert asked(cast.owner, path)["trained_tokens_per_s"] == 0.0

    Job.objects.filter(id=job.id).update(started_at=None)
    assert asked(cast.owner, path)["trained_tokens_per_s"] is None


def test_many_ledgers_are_one_page_read_by_as_many_statements_as_one(
    cast: Cast,
) -> None:
    job, alpha, beta = (
        cast.job(is_running=True),
        worker_make("alpha", "rollout"),
        worker_make("beta", "rollout"),
    )
    reported(job, alpha)
    reported(job, beta)
    worker_make("gamma", "rollout")
    Machine.objects.filter(name="gamma").update(pool="closed")
    span = "until=" + database_now().isoformat().replace("+", "%2B")

    asked(cast.owner, "me")  # the first use of a token in a while is noted
    with CaptureQueriesContext(connection) as both:
        page = asked(cast.owner, f"machines/ledger?{span}")
    with CaptureQueriesContext(connection) as one:
        asked(cast.owner, f"machines/ledger?{span}&limit=1")

    assert [machine["name"] for machine in page["results"]] == ["alpha", "beta"]
    assert page["count"] == 2
    assert len(both) == len(one)
    for machine in page["results"]:
        assert machine == asked(cast.owner, f"machines/{machine['machine_id']}/ledger?{span}")


def test_a_page_of_ledgers_divides_its_intervals_among_its_machines(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_selectors, "MAX_INTERVALS_OF_PAGE", 8)
    job = cast.job(is_running=True)
    for name in ("alpha", "beta"):
        reported(job, worker_make(name, "rollout"))

    page = asked(cast.owner, "machines/ledger")

    assert [len(machine["intervals"]) for machine in page["results"]] == [4, 4]
    assert all(machine["truncated"] for machine in page["results"])
