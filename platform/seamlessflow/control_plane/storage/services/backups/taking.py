"""Takes a back-up while jobs run.

Order, and the fault that each step prevents: deletions pause first, so no file that the database's copy names can go;
then one snapshot is opened and, at that moment, checkpoints are linked, so that one which fits the copy is there
whatever trainers do afterwards; then the database is dumped from that snapshot and the files it names are copied; the
manifest comes last. Files of later versions are harmless: nothing names them, and they are left out.
"""

import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import msgspec
import psycopg
from django.conf import settings
from django.db import connection, transaction

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.common.files.removals import DELETIONS_LOCK
from seamlessflow.control_plane.storage.services.backups.programs import database_dump
from seamlessflow.control_plane.storage.services.backups.record import Record, record_read
from seamlessflow.control_plane.storage.services.backups.staging import (
    checkpoints_stage,
    staged_path,
    staging,
)
from seamlessflow.core.artifacts.store_paths import checkpoint_path, checkpoints_path, trajectories_path
from seamlessflow.core.backup.checkpoints import checkpoint_fault, fitting_checkpoints
from seamlessflow.core.backup.manifest import (
    DUMP_NAME,
    FILES_NAME,
    INCOMPLETE_NAME,
    MANIFEST_NAME,
    BackupManifest,
    Missing,
    StoredFile,
)
from seamlessflow.runtime.artifacts.store import ArtifactStore

CHUNK_BYTES = 4 * 1024 * 1024
REPORT_EVERY_S = 5.0
NUM_TRIES = 3

Say = Callable[[str], None]


class BackupRefused(ValueError):
    """The folder cannot take a back-up; the message says what to do."""


class PlannedFile(NamedTuple):
    """A file of a bundle, which may be staged, and its path in the store and in the back-up."""

    bundle: str
    name: str
    path: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class _Plan:
    files: list[PlannedFile]
    missing: tuple[Missing, ...]


def back_up(folder: Path, *, say: Say) -> BackupManifest:
    """Write a back-up into `folder`, marked incomplete until it is whole. Raises BackupRefused, ProgramFailed."""
    store = artifact_store()
    _folder_prepare(folder, settings.ARTIFACT_ROOT.resolve())
    with _deletions_paused(say), staging(store):
        database, plan = _snapshot_taken(folder, store, say)
        files = _files_copy(plan, store, folder / FILES_NAME, say)
    manifest = BackupManifest(
        made_at=database_now(),
        artifact_root=root_recorded(store),
        database=database,
        files=files,
        missing=list(plan.missing),
    )
    _write(folder / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(manifest)))
    (folder / INCOMPLETE_NAME).unlink()
    return manifest


def _folder_prepare(folder: Path, root: Path) -> None:
    """Accept an empty folder, or clear one that an interrupted back-up left."""
    if folder.resolve().is_relative_to(root):
        raise BackupRefused(f"{folder} is inside the artifact store {root}; choose a folder outside it")
    folder.mkdir(parents=True, exist_ok=True)
    found = sorted(entry.name for entry in folder.iterdir())
    if found and INCOMPLETE_NAME not in found:
        raise BackupRefused(
            f"{folder} is not empty ({found[0]}); choose an empty folder, or one that does not exist"
        )
    _write(folder / INCOMPLETE_NAME, b"This back-up was interrupted. Take it anew into this folder.\n")


@contextmanager
def _deletions_paused(say: Say) -> Iterator[None]:
    """Pause deletions. The lock has its own connection, so it ends even if this process is killed."""
    parameters = {k: v for k, v in connection.get_connection_params().items() if k in _CONNECT}
    with psycopg.connect(**parameters, autocommit=True) as holder:
        if holder.execute("SELECT pg_try_advisory_lock(%s)", [DELETIONS_LOCK]).fetchone() != (True,):
            say("waiting for deletions, or another back-up, to finish")
            holder.execute("SELECT pg_advisory_lock(%s)", [DELETIONS_LOCK])
        yield


_CONNECT = ("host", "port", "user", "password", "dbname")


def root_recorded(store: ArtifactStore) -> str:
    """Return the root as manifests name it: a path if the store is a folder, else its URL."""
    return str(store.workspace("")) if store.is_local else store.url


def _snapshot_taken(folder: Path, store: ArtifactStore, say: Say) -> tuple[StoredFile, _Plan]:
    """Yield a snapshot of the database with the files that belong to it."""
    for attempt in range(1, NUM_TRIES + 1):
        with transaction.atomic(durable=True):
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                cursor.execute("SELECT pg_export_snapshot()")
                (snapshot,) = cursor.fetchone()
            record = record_read()
            staged = checkpoints_stage(store, record.live)
            faults = {
                job_id: fault
                for job_id, job in record.live.items()
                if (fault := checkpoint_fault(job, staged[job_id]))
            }
            if faults and attempt < NUM_TRIES:
                say("a trainer just deleted a checkpoint; taking the snapshot again")
                continue
            say("copying the database")
            database_dump(folder / DUMP_NAME, snapshot=snapshot)
        break
    lost = tuple(
        Missing(job_id=str(job_id), job_name=record.names[job_id], what=f"a checkpoint that fits: {fault}")
        for job_id, fault in faults.items()
    )
    plan = _plan(replace(record, missing=(*record.missing, *lost)), store, staged)
    return _described(folder / DUMP_NAME, DUMP_NAME), plan


def _plan(record: Record, store: ArtifactStore, staged: Mapping[UUID, Collection[int]]) -> _Plan:
    bundles = {store_path: store_path for store_path in record.uploads}
    for job_id in record.names:
        bundles |= {store_path: store_path for store_path in record.versions.get(job_id, ())}
        bundles[trajectories_path(job_id)] = trajectories_path(job_id)
        job = record.live.get(job_id)
        if job is None:
            names = store.names(checkpoints_path(job_id))
            bundles |= {one: one for one in (f"{checkpoints_path(job_id)}/{name}" for name in names)}
        else:
            for batch in fitting_checkpoints(job, staged[job_id]):
                store_path = checkpoint_path(job_id, batch)
                bundles[store_path] = staged_path(store_path)
    files = [
        PlannedFile(source, name, f"{store_path}/{name}", num_bytes)
        for store_path, source in sorted(bundles.items())
        for name, num_bytes in sorted(store.files(source).items())
    ]
    return _Plan(files, record.missing)


def _files_copy(plan: _Plan, store: ArtifactStore, target: Path, say: Say) -> list[StoredFile]:
    total = sum(file.num_bytes for file in plan.files)
    say(f"copying {len(plan.files)} files of {total / 1e9:.2f} GB")
    stored, copied, reported_s = [], 0, time.monotonic()
    for file in plan.files:
        stored.append(file_write(store.read(file.bundle, file.name), target / file.path, file.path))
        copied += stored[-1].num_bytes
        if time.monotonic() - reported_s > REPORT_EVERY_S:
            reported_s = time.monotonic()
            say(f"{copied / 1e9:.2f} of {total / 1e9:.2f} GB ({100 * copied // max(total, 1)} %)")
    return stored


def file_write(chunks: Iterable[bytes], target: Path, name: str) -> StoredFile:
    """Write durably; return the digest of the bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, num_bytes = hashlib.sha256(), 0
    with target.open("wb") as writer:
        for chunk in chunks:
            writer.write(chunk)
            digest.update(chunk)
            num_bytes += len(chunk)
        writer.flush()
        os.fsync(writer.fileno())
    return StoredFile(path=name, num_bytes=num_bytes, sha256=digest.hexdigest())


def file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as reader:
        while chunk := reader.read(CHUNK_BYTES):
            yield chunk


def _described(path: Path, name: str) -> StoredFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return StoredFile(path=name, num_bytes=path.stat().st_size, sha256=digest)


def _write(path: Path, data: bytes) -> None:
    """Write the file atomically."""
    aside = path.with_name(f".{path.name}")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
