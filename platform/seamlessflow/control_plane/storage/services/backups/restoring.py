"""Restores a back-up into an empty installation.

Takes a complete back-up, an empty database and an empty artifact store; writes the installation as of the snapshot,
with its machines away and its jobs unchanged. Invariants: an incomplete or damaged back-up changes nothing in the
database; a job with missing files is paused with the reason instead of failing in a loop; credentials of phases that
were live at the snapshot do not work here.
"""

from collections import defaultdict
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record
from seamlessflow.control_plane.common.subjects import INSTALLATION
from seamlessflow.control_plane.jobs.services.moves import PLATFORM, job_desire
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.storage.services.backups.programs import database_restore
from seamlessflow.control_plane.storage.services.backups.taking import (
    Say,
    file_chunks,
    file_write,
    root_recorded,
)
from seamlessflow.core.artifacts.store_paths import bundle_of
from seamlessflow.core.backup.manifest import (
    DUMP_NAME,
    FILES_NAME,
    INCOMPLETE_NAME,
    MANIFEST_NAME,
    BackupManifest,
    DamagedBackup,
    StoredFile,
    manifest_decode,
)
from seamlessflow.core.lifecycle.jobs import DesiredJobState
from seamlessflow.runtime.artifacts.store import ArtifactStore

RESTORING = ".restoring"
# What a web or background process leaves in a store before anything is stored.
TEMPORARY = ("incoming", "celerybeat-schedule", RESTORING)
# Phases leased after the snapshot may still run on hosts that were not stopped; their fences are lower.
FENCE_LEAP = 1_000_000
_PLACES = (
    ("policies_policyversion", "uri"),
    ("policies_policyversion", "checkpoint_uri"),
    ("uploads_artifact", "uri"),
    ("jobs_job", "model_path"),
    ("jobs_job", "tasks_path"),
    ("jobs_job", "evaluation_tasks_path"),
)


class RestoreRefused(ValueError):
    """The installation is not empty. The message says what to do."""


def restore(folder: Path, *, say: Say) -> BackupManifest:
    """Restore the back-up. Raises DamagedBackup, RestoreRefused, ProgramFailed."""
    manifest = manifest_read(folder)
    root, store = settings.ARTIFACT_ROOT.resolve(), artifact_store()
    if manifest.artifact_root.startswith("/") != store.is_local:
        raise RestoreRefused(
            f"the back-up was taken of the store {manifest.artifact_root} and ARTIFACT_ROOT is {store.url}; "
            "restore a folder into a folder, and an object store into an object store"
        )
    root.mkdir(parents=True, exist_ok=True)
    if _num_tables() and (root / RESTORING).exists():
        say("continuing after an interruption: the database is already restored")
    else:
        _empty_check(root, store)
        (root / RESTORING).touch()
        _files_copy(folder, store, manifest, say)
        say("restoring the database")
        database_restore(folder / DUMP_NAME)
    with transaction.atomic():
        _paths_move(manifest.artifact_root, root_recorded(store))
        Machine.objects.update(last_fence=F("last_fence") + FENCE_LEAP)
        paused = _missing_handle(manifest)
        event_record(
            kind="installation.restored",
            subject_type=SubjectType.PROJECT,
            subject_id=INSTALLATION,
            author=PLATFORM,
            reason=f"from the back-up of {manifest.made_at.isoformat(timespec='seconds')}",
            data={"num_files": len(manifest.files), "missing": len(manifest.missing)},
        )
    for name, reason in paused.items():
        say(f"{name} is paused: {reason}")
    (root / RESTORING).unlink()
    return manifest


def manifest_read(folder: Path) -> BackupManifest:
    """Return the manifest if every file exists with its size. Raises DamagedBackup."""
    if (folder / INCOMPLETE_NAME).exists() or not (folder / MANIFEST_NAME).exists():
        raise DamagedBackup(f"{folder} does not contain a complete back-up")
    manifest = manifest_decode((folder / MANIFEST_NAME).read_bytes())
    _size_check(folder / DUMP_NAME, manifest.database)
    for file in manifest.files:
        _size_check(folder / FILES_NAME / file.path, file)
    return manifest


def _size_check(path: Path, file: StoredFile) -> None:
    if not path.is_file():
        raise DamagedBackup(f"{file.path} is missing from the back-up")
    if path.stat().st_size != file.num_bytes:
        raise DamagedBackup(f"{file.path} has {path.stat().st_size} bytes, not {file.num_bytes}")


def _files_copy(folder: Path, store: ArtifactStore, manifest: BackupManifest, say: Say) -> None:
    say(f"copying {len(manifest.files)} files of {manifest.num_bytes / 1e9:.2f} GB")
    bundles: dict[str, list[StoredFile]] = defaultdict(list)
    for file in manifest.files:
        bundles[bundle_of(file.path)[0]].append(file)
    for bundle, files in bundles.items():
        for file in files:
            chunks = file_chunks(folder / FILES_NAME / file.path)
            if file_write(chunks, store.workspace(file.path), file.path) != file:
                raise DamagedBackup(f"{file.path}: its content differs from its back-up")
        store.keep(bundle)


def _num_tables() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        (number,) = cursor.fetchone()
    return int(number)


def _empty_check(root: Path, store: ArtifactStore) -> None:
    if num_tables := _num_tables():
        raise RestoreRefused(f"the database has {num_tables} tables; restore into an empty one")
    if (root / RESTORING).exists():
        return  # left by an interrupted restore: all files are copied again
    found = sorted(name for name in store.entries() if not name.startswith(TEMPORARY))
    if found:
        raise RestoreRefused(
            f"the artifact store {store.url} is not empty ({found[0]}); restore into an empty one"
        )


def _paths_move(before: str, now: str) -> None:
    """Rewrite the absolute paths, or the URLs, in the database: both of a folder, or both of an object store."""
    if before == now:
        return
    moves = [(before, now)]
    if before.startswith("/"):
        moves.append((Path(before).as_uri(), Path(now).as_uri()))
    with connection.cursor() as cursor:
        for table, column in _PLACES:
            for old, new in moves:
                cursor.execute(
                    f"UPDATE {table} SET {column} = %(new)s || substr({column}, length(%(old)s) + 1) "  # noqa: S608
                    f"WHERE starts_with({column}, %(old)s || '/')",
                    {"old": old, "new": new},
                )


def _missing_handle(manifest: BackupManifest) -> dict[str, str]:
    """Pause jobs that lack files and mark missing data as deleted. Returns the paused jobs with reasons."""
    store = artifact_store()
    for version in PolicyVersion.objects.filter(deleted_at=None):
        store_path = store.path_of(version.uri)
        if store_path is not None and not store.exists(store_path):
            PolicyVersion.objects.filter(id=version.id).update(deleted_at=database_now())
    paused = {}
    for missing in manifest.missing:
        if not missing.job_id:
            continue
        reason = f"the back-up that this installation was restored from lacks {missing.what}"
        try:
            job_desire(
                job_id=UUID(missing.job_id), desired=DesiredJobState.PAUSE, reason=reason, author=PLATFORM
            )
        except ApplicationError:
            continue  # it has ended: missing files block nothing
        paused[missing.job_name] = reason
    return paused
