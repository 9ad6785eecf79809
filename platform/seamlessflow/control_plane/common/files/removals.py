"""Deletes stored files so that a crash leaves no half-deleted file in sight.

First `removal_mark` writes a row, in the transaction that hides the thing: which files go, for whom and why. Then
`files_remove` deletes them, and may be repeated; no reader finds half of them. Invariant: no file is
deleted while a back-up has the lock `DELETIONS_LOCK`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import connection

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.common.models import Removal, SubjectType
from seamlessflow.control_plane.common.services import event_record
from seamlessflow.core.retention.planner import PlannedRemoval, RemovalKind

# Deletions take this lock shared and do not wait; a back-up takes it exclusively while it copies.
DELETIONS_LOCK = 0x5EA71E57
RETENTION = "retention"  # the author in events
JOB_DELETED = f"{RemovalKind.JOB}.deleted"


def removal_mark(
    *,
    project_id: UUID,
    planned: PlannedRemoval,
    store_paths: Iterable[str],
    author: str,
    with_event: bool = True,
) -> Removal:
    """Record the removal of store paths. Call this in the transaction that hides the thing."""
    removal = Removal.objects.create(
        project_id=project_id,
        kind=planned.kind,
        subject_id=planned.subject,
        number=planned.number,
        name=planned.name[:255],
        num_bytes=planned.num_bytes,
        paths=list(store_paths),
        reason=planned.reason,
        author=author,
    )
    if with_event:
        _event(removal)
    return removal


def files_remove_marked(removal: Removal) -> None:
    """Remove the files and finish the removal. For things that consist of files only."""
    files_remove(removal)
    Removal.objects.filter(id=removal.id).update(finished_at=database_now())


def files_remove(removal: Removal) -> None:
    """Delete the files, and what an interrupted removal left of them."""
    store = artifact_store()
    for store_path in removal.paths:
        store.remove(store_path)


@contextmanager
def deletions_allowed() -> Iterator[bool]:
    """Yield False while a back-up copies. Otherwise yield True, and make a new back-up wait until the block ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock_shared(%s)", [DELETIONS_LOCK])
        is_allowed = cursor.fetchone() == (True,)
    try:
        yield is_allowed
    finally:
        if is_allowed:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock_shared(%s)", [DELETIONS_LOCK])


def _event(removal: Removal) -> None:
    is_upload = removal.kind == RemovalKind.UPLOAD
    # A deleted job's events are deleted with it, so the event of its deletion belongs to the project.
    of_job = removal.kind not in (RemovalKind.UPLOAD, RemovalKind.JOB)
    event_record(
        kind=f"{removal.kind}.deleted",
        subject_type=SubjectType.ARTIFACT if is_upload else SubjectType.JOB,
        subject_id=removal.subject_id,
        job_id=removal.subject_id if of_job else None,
        project_id=removal.project_id,
        reason=removal.reason,
        author=removal.author,
        data={"name": removal.name, "number": removal.number, "num_bytes": removal.num_bytes},
    )
