"""Trajectories as Parquet: built on request, and kept as files when retention deletes the rows.

Invariant: if the policy keeps them, rows are written to files before deletion; deleting a job deletes its files.
"""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from seamlessflow.control_plane.common.errors import not_found
from seamlessflow.control_plane.common.files.removals import RETENTION
from seamlessflow.control_plane.common.models import Removal
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.places import job_folder
from seamlessflow.control_plane.storage.selectors import policy_of
from seamlessflow.control_plane.trajectories.models import Session
from seamlessflow.control_plane.trajectories.parquet import ParquetTable, parquet_chunks, parquet_write
from seamlessflow.control_plane.trajectories.selectors import nodes_check
from seamlessflow.core.retention.planner import RemovalKind

CHUNK_BYTES = 1024**2


def trajectories_folder(job_id: UUID) -> Path:
    """Return the folder of the Parquet files of a job whose rows retention deleted."""
    return job_folder(job_id) / "trajectories"


def trajectories_keep(removal: Removal) -> None:
    """Write the rows of this removal to files if the policy keeps them. Repeatable. Raises OSError."""
    folder = trajectories_folder(removal.subject_id)
    if removal.kind != RemovalKind.TRAJECTORIES or removal.author != RETENTION or folder.exists():
        return
    is_wanted = policy_of(removal.project_id).values["trajectories_to_parquet"]
    if is_wanted and Session.objects.filter(job_id=removal.subject_id).exists():
        parquet_write(removal.subject_id, folder)


def trajectories_bytes(job_id: UUID) -> int:
    """Return the bytes of the job's Parquet files."""
    folder = trajectories_folder(job_id)
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0


def trajectories_export(job: Job, table_name: str) -> Iterator[bytes]:
    """Return the bytes of one table. Raises ApplicationError: 404 for an unknown table, 410 if nothing was kept."""
    table = next((one for one in ParquetTable if one.file_name == table_name), None)
    if table is None:
        accepted = ", ".join(one.file_name for one in ParquetTable)
        raise not_found(f"table (accepted: {accepted})", table_name)
    kept = trajectories_folder(job.id) / table.file_name
    if job.trajectories_deleted_at is not None and kept.is_file():
        return _file_chunks(kept)
    nodes_check(job)
    return parquet_chunks(job.id, table)


def _file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
