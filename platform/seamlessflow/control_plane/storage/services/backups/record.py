"""Reads which files the database names, in the transaction whose snapshot is dumped."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.core.artifacts.store_paths import bundle_of
from seamlessflow.core.backup.checkpoints import JobRecord
from seamlessflow.core.backup.manifest import Missing
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES

_JOBS = """
    SELECT j.id, j.name, j.state = ANY(%s), j.published_batch,
           coalesce(max(b.number) FILTER (WHERE b.payload IS NULL), 0), coalesce(max(b.number), 0)
    FROM jobs_job j LEFT JOIN trajectory_batch b ON b.job_id = j.id
    WHERE j.deleted_at IS NULL GROUP BY j.id
"""
_VERSIONS = """
    SELECT v.job_id, j.name, v.version, v.uri FROM policies_policyversion v JOIN jobs_job j ON j.id = v.job_id
    WHERE v.deleted_at IS NULL AND j.deleted_at IS NULL
"""
_UPLOADS = "SELECT id, name, uri FROM uploads_artifact WHERE deleted_at IS NULL"


@dataclass(frozen=True, slots=True)
class Record:
    """The files that the database names, as bundles of the artifact store."""

    live: Mapping[UUID, JobRecord]  # jobs that have not ended
    names: Mapping[UUID, str]  # of every job
    versions: Mapping[UUID, frozenset[str]]  # weights, by job
    uploads: frozenset[str]
    missing: tuple[Missing, ...]


def record_read() -> Record:
    """Return which files the database names. Call this inside the transaction whose snapshot is dumped."""
    store = artifact_store()
    live: dict[UUID, JobRecord] = {}
    names: dict[UUID, str] = {}
    for job_id, name, has_ended, *numbers in _rows(_JOBS, [[state.value for state in TERMINAL_JOB_STATES]]):
        names[job_id] = name
        if not has_ended:
            live[job_id] = JobRecord(*numbers)
    versions: dict[UUID, set[str]] = defaultdict(set)
    uploads, missing = set(), []
    for job_id, name, number, uri in _rows(_VERSIONS):
        store_path = store.path_of(uri)
        if store_path is None:
            continue  # the initial model, outside the store
        if store.exists(store_path):
            versions[job_id].add(bundle_of(store_path)[0])
        else:
            missing.append(
                Missing(job_id=str(job_id), job_name=name, what=f"the weights of version {number}")
            )
    for upload_id, name, uri in _rows(_UPLOADS):
        if (store_path := store.path_of(uri)) is None or not store.exists(store_path):
            missing.append(Missing(what=f"the upload {name!r} ({upload_id})"))
        else:
            uploads.add(bundle_of(store_path)[0])
    kept = {job_id: frozenset(paths) for job_id, paths in versions.items()}
    return Record(live, names, kept, frozenset(uploads), tuple(missing))


def _rows(statement: str, parameters: Sequence[list[str]] = ()) -> Iterator[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        yield from cursor.fetchall()
