"""A publication is few statements, and the one that stores it does so once, whoever repeats it."""

from concurrent.futures import ThreadPoolExecutor

import msgspec
import psycopg
import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from seamlessflow.control_plane.common.database.availability import connection_arguments
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import (
    Cast,
    order_of,
    phase_make,
    publication_of,
    worker_make,
    worker_post,
)
from tests.fixtures.processes import until

MAX_QUERIES = 8


def trainer(cast: Cast) -> tuple[Job, Phase, str]:
    job = cast.job(is_running=True)
    phase = phase_make(job, worker_make("alpha", "train").machine, Role.TRAIN)
    return job, phase, order_of(phase).credential


def published(job: Job, number: int, credential: str) -> tuple[int, bytes]:
    body = msgspec.json.encode(publication_of(job, number, checkpoint_uri=None, num_bytes=2**40))
    response = worker_post("publications", body, secret=credential)
    return response.status_code, response.content


def test_a_publication_is_stored_whole_by_few_statements(cast: Cast) -> None:
    job, phase, credential = trainer(cast)
    Job.objects.filter(id=job.id).update(num_failures=2)
    states = (PhaseState.ACTIVE, PhaseState.DRAINING)
    engines = [phase_make(job, worker_make(state.value, "rollout").machine, Role.ROLLOUT) for state in states]
    for engine, state in zip(engines, states, strict=True):
        Phase.objects.filter(id=engine.id).update(state=state.value)

    with CaptureQueriesContext(connection) as sent:
        assert published(job, 1, credential)[0] == 200

    assert len([query for query in sent if "SAVEPOINT" not in query["sql"]]) <= MAX_QUERIES
    row = PolicyVersion.objects.get(job=job, version=1)
    told = publication_of(job, 1)
    assert (row.uri, row.manifest_sha256, row.num_bytes) == (told.uri, told.manifest_sha256, 2**40)
    assert (row.parent_version, row.optimizer_step, row.batch_number) == (0, 1, 1)
    assert (row.phase_id, row.train_fence, row.checkpoint_uri) == (phase.id, phase.fence, "")
    assert (row.project_id, row.is_pinned, row.deleted_at) == (job.project_id, False, None)
    job.refresh_from_db()
    assert (job.latest_version, job.published_batch, job.num_failures) == (1, 1, 0)
    wanted = [Phase.objects.get(id=engine.id).desired_version for engine in engines]
    assert wanted == [1, 0], "an engine that drains gets no new version"
    event = Event.objects.get(kind="version.published")
    assert (event.subject_id, event.subject_type, event.job_id) == (row.id, "version", job.id)
    assert (event.author, event.project_id) == (f"phase:{phase.id}", job.project_id)
    assert event.data == {"version": 1, "batch_number": 1, "optimizer_step": 1}


@pytest.mark.django_db(transaction=True)
def test_a_publication_that_is_repeated_while_the_first_is_stored_gets_the_same_answer(cast: Cast) -> None:
    job, _, credential = trainer(cast)

    def repeated() -> tuple[int, bytes]:
        try:
            return published(job, 1, credential)
        finally:
            connections.close_all()

    def somebody_waits() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            return bool(cursor.fetchone()[0])

    with (
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(**connection_arguments(), autocommit=True) as heard,
    ):
        heard.execute("LISTEN sf_engines")
        with transaction.atomic():
            first = published(job, 1, credential)
            second = threads.submit(repeated)
            until(somebody_waits, what="the repeat waits for the first")
        assert second.result() == first
        told = [notice.payload for notice in heard.notifies(timeout=10, stop_after=1)]

    assert first[0] == 200
    assert told == [str(job.id)]
    assert Event.objects.filter(kind="version.published").count() == 1
