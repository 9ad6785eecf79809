"""The rows that pages, snapshots, heartbeats and the scheduler read grow neither with the past nor
with other jobs.

PostgreSQL counts the rows (EXPLAIN ANALYZE), so no figure here depends on how busy the machine is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.live.selectors import job_snapshot, jobs_snapshot, machines_snapshot
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.trajectories.models import RolloutGroup
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import Interval, PhaseReport
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow.core.types.tags import Role
from tests.fixtures.aging import NUM_OLD_JOBS, Past, old_jobs_make, past_make
from tests.fixtures.control_plane import Cast, Worker, group_make, phase_make, worker_make
from tests.fixtures.query_plans import rows_read, scanned_rows, statements_of

PAST = Past(num_events=8_000, num_intervals=8_000, num_points=4_000, num_groups=4_000, num_phases=2_000)
# Enough for a planner to prefer an index.
LISTED_PAST = Past(
    num_events=40_000, num_intervals=10, num_points=10, num_groups=20, num_phases=20_000, num_batches=1_000,
    num_versions=1_000,
)  # fmt: skip
KEPT_UPLOADS = Past(num_events=0, num_intervals=0, num_points=0, num_groups=0, num_phases=0, num_uploads=100)
ADMIN_LISTS = (
    "common/event/", "common/event/?kind=machine.registered", "common/event/?q=JOB", "scheduling/phase/",
    "scheduling/phase/?q=JOB", "policies/policyversion/", "policies/policyversion/?q=JOB",
)  # fmt: skip
STORAGE = ("storage/jobs", "storage/plan")
MAX_ROWS_OF_A_LIST = 11_500  # 100 are shown; up to 10,000 are counted
# Statistics of a table that grew choose other plans: a few rows more or less are no growth.
SLACK_ROWS = 400
FENCE_OF_THE_PRESENT = 10_000_000


def execute(sql: str, values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)


def world_make(cast: Cast) -> tuple[Job, list[Worker]]:
    """A running job on two machines, and old jobs of which only their rows are left."""
    job = cast.job(is_running=True)
    workers = [worker_make("alpha", "rollout", "train"), worker_make("beta", "rollout")]
    Machine.objects.update(last_fence=FENCE_OF_THE_PRESENT)
    for worker in workers:
        worker.heartbeat(intervals=[idle(0, 1.0, 2.0)])
        phase_make(job, worker.machine, Role.ROLLOUT)
    for index in range(4):
        group = group_make(job, index)
        RolloutGroup.objects.filter(id=group.id).update(batch_number=1, state="batched", reward_mean=0.5)
    Job.objects.filter(id=job.id).update(published_batch=1)
    old_jobs_make(execute, like=job.id)
    for table in ("jobs_job", "trajectory_group", "telemetry_ledgerinterval", "common_event"):
        execute(f"ANALYZE {table}", [])
    return job, workers


def idle(seq: int, start_s: float, end_s: float) -> Interval:
    return Interval(seq=seq, state=LedgerState.IDLE, cause=IdleCause.NO_JOB, start_s=start_s, end_s=end_s)


def doors(cast: Cast, job: Job, machine_id: UUID) -> dict[str, Callable[[], object]]:
    shown, machine = show_id(IdKind.JOB, job.id), show_id(IdKind.MACHINE, machine_id)

    def page(path: str) -> Callable[[], object]:
        def get() -> object:
            answer = cast.owner.call("GET", path)
            assert answer.status_code == 200, answer.content
            return answer

        return get

    paths = [
        "jobs", f"jobs/{shown}", "machines", "machines/ledger", f"machines/{machine}/ledger",
        f"machines/{machine}/events", "uploads", "tokens",
        *(f"jobs/{shown}/{part}" for part in ("versions", "events", "phases", "groups", "evaluations", "ledger",
                                              "summary", "metrics")),
    ]  # fmt: skip
    return {path.replace(shown, "J").replace(machine, "M"): page(path) for path in paths} | {
        "socket jobs": lambda: jobs_snapshot(job.project_id),
        "socket job": lambda: job_snapshot(job.id),
        "scheduler": snapshot_load,
    }


def test_pages_and_snapshots_of_a_job_read_no_more_rows_in_an_aged_installation(cast: Cast) -> None:
    job, workers = world_make(cast)
    calls = doors(cast, job, workers[0].machine.id)
    alone = {name: rows_read(call) for name, call in calls.items()}
    machines = [worker.machine.id for worker in workers]
    past_make(execute, PAST, project_id=job.project_id, machines=machines)

    aged = {name: rows_read(call) for name, call in calls.items()}

    grown = {name: (alone[name], rows) for name, rows in aged.items() if rows > 2 * alone[name] + SLACK_ROWS}
    assert not grown, "rows read alone, and aged"


def test_the_snapshot_of_the_machines_does_not_read_the_past(cast: Cast) -> None:
    job, workers = world_make(cast)
    alone = rows_read(lambda: machines_snapshot("default"))
    past_make(execute, PAST, project_id=job.project_id, machines=[worker.machine.id for worker in workers])

    assert rows_read(lambda: machines_snapshot("default")) <= 2 * alone + SLACK_ROWS


def test_the_list_of_jobs_does_not_read_the_past_for_its_curves(cast: Cast) -> None:
    job, workers = world_make(cast)
    listed = doors(cast, job, workers[0].machine.id)["jobs"]
    alone = rows_read(listed)
    past_make(execute, PAST, project_id=job.project_id, machines=[workers[0].machine.id])

    # And the few groups of each old job's newest batch, which the list names by itself.
    assert rows_read(listed) <= 2 * alone + NUM_OLD_JOBS * 10


def test_admin_lists_storage_and_scrapes_read_only_what_they_show(cast: Cast) -> None:
    """A list reads one page, storage only versions whose files still exist; a scrape counts without reading the
    past."""
    job, workers = world_make(cast)
    browser, shown = operator_browser(cast), show_id(IdKind.JOB, job.id)

    def read() -> dict[str, int]:
        lists = {path: f"/admin/{path.replace('JOB', shown)}" for path in ADMIN_LISTS}
        return (
            {path: rows_read(partial(browser.get, url)) for path, url in lists.items()}
            | {path: rows_read(partial(cast.owner.call, "GET", path)) for path in STORAGE}
            | {"/metrics": rows_read(lambda: Client().get("/metrics"))}
        )

    alone = read()
    past_make(execute, LISTED_PAST, project_id=job.project_id, machines=[workers[0].machine.id])
    aged = read()

    more = {"/metrics": NUM_OLD_JOBS * 2} | dict.fromkeys(STORAGE, NUM_OLD_JOBS * 20)
    accepted = {path: 2 * rows + more.get(path, MAX_ROWS_OF_A_LIST) for path, rows in alone.items()}
    grown = {path: (alone[path], rows) for path, rows in aged.items() if rows > accepted[path]}
    assert not grown, "rows read alone, and aged"


def test_a_retention_plan_does_not_load_uploads_that_the_policy_keeps(cast: Cast) -> None:
    job = cast.job()
    past_make(execute, KEPT_UPLOADS, project_id=job.project_id, machines=[])

    sent = statements_of(lambda: cast.owner.call("GET", "storage/plan"))

    with connection.cursor() as cursor:
        [loads] = [sql for sql in sent if sql.startswith("SELECT") and '"uploads_artifact"."sha256"' in sql]
        cursor.cursor.execute(loads)
        assert cursor.rowcount == 0


def test_a_search_finds_all_events_of_an_old_job(cast: Cast) -> None:
    job, workers = world_make(cast)
    browser = operator_browser(cast)
    past_make(execute, LISTED_PAST, project_id=job.project_id, machines=[workers[0].machine.id])
    old_job = Job.objects.filter(name="old 1").values_list("id", flat=True).get()

    found = browser.get("/admin/common/event/", {"q": show_id(IdKind.JOB, old_job)}).context["cl"]

    assert found.result_count == LISTED_PAST.num_events // NUM_OLD_JOBS
    assert {event.job_id for event in found.result_list} == {old_job}


def operator_browser(cast: Cast) -> Client:
    cast.owner.user.is_superuser = cast.owner.user.is_staff = True
    cast.owner.user.save()
    browser = Client()
    browser.force_login(cast.owner.user)
    return browser


def test_the_list_of_jobs_reads_only_the_newest_batch_of_each(cast: Cast) -> None:
    job, workers = world_make(cast)
    past_make(execute, PAST, project_id=job.project_id, machines=[workers[0].machine.id])

    listed = [sql for sql in statements_of(lambda: cast.owner.call("GET", "jobs")) if "reward_mean" in sql]

    # Two groups of each old job's newest batch, and the jobs themselves.
    newest_batch = next(sql for sql in listed if '"trajectory_group"' in sql)
    assert scanned_rows(newest_batch) <= (NUM_OLD_JOBS + 1) * 10


@pytest.mark.parametrize("role", [Role.ROLLOUT, Role.TRAIN])
def test_a_heartbeat_sends_and_reads_the_same_with_one_job_and_one_machine_or_with_twenty(
    cast: Cast, role: Role
) -> None:
    job, alpha = cast.job(is_running=True), worker_make("alpha", "rollout", "train")
    phase = phase_make(job, alpha.machine, role)

    def beat() -> None:
        state = PhaseReport(phase_id=phase.id, fence=phase.fence, state=PhaseState.STARTING)
        alpha.monotonic_s += 1.0
        start_s = alpha.monotonic_s - 1.0
        alpha.heartbeat(phases=[state], intervals=[idle(alpha.num_acked, start_s, alpha.monotonic_s)])
        alpha.num_acked += 1

    for _ in range(2):
        beat()
    alone = statements_of(beat)
    for number in range(19):
        others = worker_make(f"other-{number}", "rollout")
        phase_make(cast.job(is_running=True, name=f"job {number}"), others.machine, Role.ROLLOUT)
        others.heartbeat()
    assert Phase.objects.count() == 20
    beat()  # the token is read again after a while, and making so many machines takes long

    among_many = statements_of(beat)

    assert len(among_many) == len(alone)
    assert not [sql for sql in among_many if '"jobs_job"."spec"' in sql.partition(" FROM ")[0]], (
        "specs are kept"
    )


def test_a_scheduling_cycle_sends_the_same_number_of_statements_for_one_job_and_for_twenty(
    cast: Cast,
) -> None:
    job, alpha = cast.job(is_running=True), worker_make("alpha", "rollout")
    phase_make(job, alpha.machine, Role.ROLLOUT)
    alone = statements_of(snapshot_load)
    for number in range(19):
        worker_make(f"other-{number}", "rollout").heartbeat()
        cast.job(is_running=True, name=f"job {number}")

    assert len(statements_of(snapshot_load)) == len(alone)
