"""Trajectories as Parquet: built on request, and kept as files when retention deletes the rows.

Invariant: if the policy keeps them, rows are written to files before deletion; deleting a job deletes its files.
"""

from collections.abc import Iterator
from uuid import UUID

from seamlessflow.control_plane.common.errors import not_found
from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.common.files.removals import RETENTION
from seamlessflow.control_plane.common.models import Removal
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.storage.selectors import policy_of
from seamlessflow.control_plane.trajectories.models import Session
from seamlessflow.control_plane.trajectories.selectors.parquet import (
    ParquetTable,
    parquet_chunks,
    parquet_write,
)
from seamlessflow.control_plane.trajectories.selectors.sessions import nodes_check
from seamlessflow.core.artifacts.store_paths import trajectories_path
from seamlessflow.core.retention.planner import RemovalKind


def trajectories_keep(removal: Removal) -> None:
    """Write the rows of this removal to files if the policy keeps them. Repeatable. Raises OSError."""
    store_path, store = trajectories_path(removal.subject_id), artifact_store()
    if removal.kind != RemovalKind.TRAJECTORIES or removal.author != RETENTION or store.exists(store_path):
        return
    is_wanted = policy_of(removal.project_id).values["trajectories_to_parquet"]
    if is_wanted and Session.objects.filter(job_id=removal.subject_id).exists():
        parquet_write(removal.subject_id, store.workspace(store_path))
        store.keep(store_path)


def trajectories_bytes(job_id: UUID) -> int:
    """Return the bytes of the job's Parquet files."""
    return sum(artifact_store().files(trajectories_path(job_id)).values())


def trajectories_export(job: Job, table_name: str) -> Iterator[bytes]:
    """Return the bytes of one table. Raises ApplicationError: 404 for an unknown table, 410 if nothing was kept."""
    table = next((one for one in ParquetTable if one.file_name == table_name), None)
    if table is None:
        accepted = ", ".join(one.file_name for one in ParquetTable)
        raise not_found(f"table (accepted: {accepted})", table_name)
    store_path, store = trajectories_path(job.id), artifact_store()
    if job.trajectories_deleted_at is not None and table.file_name in store.files(store_path):
        return store.read(store_path, table.file_name)
    nodes_check(job)
    return parquet_chunks(job.id, table)
