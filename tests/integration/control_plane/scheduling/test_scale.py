"""What happens all the time costs no more because an installation has had many jobs, or has many now.

Rows that PostgreSQL looks at and statements are counted, not time.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.scheduling.selectors import snapshot_rows
from seamlessflow.control_plane.scheduling.services.leases import plan_apply
from seamlessflow.control_plane.worker_protocol.beats import machine_see
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.decisions import Plan
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, Worker, phase_make, worker_make

NUM_MANY = 800


def jobs_add(like: Job, num: int, state: JobState) -> None:
    """Add jobs like this one, with their version 0."""
    jobs = []
    for number in range(num):
        job = Job.objects.get(id=like.id)
        job.id, job.name, job.state, job._state.adding = new_id(), f"{state} {number}", state, True
        jobs.append(job)
    Job.objects.bulk_create(jobs)
    PolicyVersion.objects.bulk_create(
        PolicyVersion(project_id=job.project_id, job=job, version=0, uri="versions/0") for job in jobs
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs_job, policies_policyversion")


@contextmanager
def statements_kept() -> Iterator[list[tuple[str, Any]]]:
    """Collect the statements that read, with their values."""
    kept: list[tuple[str, Any]] = []

    def keep(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        kept.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(keep):
        yield kept


def rows_of(read: Callable[[], object]) -> int:
    """Return how many rows PostgreSQL looks at in tables and indexes for what `read` asks."""
    with statements_kept() as kept:
        read()
    assert kept
    with connection.cursor() as cursor:
        num = 0
        for sql, params in kept:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
            row = cursor.fetchone()
            plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
            num += _looked_at(plan[0]["Plan"])
    return num


def _looked_at(node: dict[str, Any]) -> int:
    own = 0
    if "Scan" in node["Node Type"] and "Relation Name" in node:
        left_out = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        own = round((node["Actual Rows"] + left_out) * node["Actual Loops"])
    return own + sum(_looked_at(child) for child in node.get("Plans", ()))


def beating(cast: Cast) -> tuple[Job, Worker]:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase_make(job, beta.machine, Role.ROLLOUT)
    beta.heartbeat()
    return job, beta


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.RUNNING, JobState.QUEUED])
def test_fault_8_a_heartbeat_does_not_look_at_all_jobs(cast: Cast, state: JobState) -> None:
    job, beta = beating(cast)
    jobs_add(job, 40, JobState.RUNNING)

    def beat() -> object:
        return machine_see(machine_id=beta.machine.id, boot_id=beta.boot_id)

    few = rows_of(beat)
    jobs_add(job, NUM_MANY, state)
    assert rows_of(beat) <= few + 40


def test_fault_8_a_cycle_does_not_look_at_jobs_that_are_over(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = beating(cast)
    asked: list[str] = []

    def note(statement: str, values: object = None) -> list[Any]:
        asked.append(statement)
        return []

    monkeypatch.setattr(snapshot_rows, "prepared_rows", note)
    snapshot_rows.machine_views()
    snapshot_rows.job_views()

    def read() -> None:
        with connection.cursor() as cursor:
            for statement in asked:
                cursor.execute(statement)

    few = rows_of(read)
    jobs_add(job, NUM_MANY, JobState.COMPLETED)
    assert rows_of(read) <= few + 40


def test_fault_8_a_cycle_asks_as_often_however_many_jobs_there_are(cast: Cast) -> None:
    job, _ = beating(cast)

    def num_asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            snapshot_rows.machine_views()
            snapshot_rows.job_views()
        return len(queries)

    num_asked()
    few = num_asked()
    jobs_add(job, 20, JobState.RUNNING)
    assert num_asked() <= few + 1, "the new specs are read once, by one statement"
    assert num_asked() == few


def test_reasons_for_waiting_are_written_by_one_statement_and_not_to_jobs_that_are_over(cast: Cast) -> None:
    job = cast.job()
    jobs_add(job, 20, JobState.QUEUED)
    over = Job.objects.filter(name="queued 0").get()
    reasons = {one.id: f"waiting: {one.name}" for one in Job.objects.all()}
    Job.objects.filter(id=over.id).update(state=JobState.CANCELLED)

    with CaptureQueriesContext(connection) as queries:
        plan_apply(Plan((), reasons, {job.id: reasons[job.id]}, reasons))

    assert len(queries) == 1
    stored = dict(Job.objects.values_list("id", "waiting_reason"))
    assert stored.pop(over.id) == ""
    assert stored.pop(job.id) == "", "what is stored already is not written"
    assert stored == {job_id: reasons[job_id] for job_id in stored}
    with CaptureQueriesContext(connection) as queries:
        plan_apply(Plan((), reasons, reasons, reasons))
    assert len(queries) == 0
