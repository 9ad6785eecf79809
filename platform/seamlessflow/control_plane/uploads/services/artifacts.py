"""Makes an artifact from a received file, or from files that the platform makes itself.

Invariant: an artifact is whole or absent, in the store and in the table.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.db import transaction

from seamlessflow.control_plane.accounts.models import Project, User
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.control_plane.uploads.services.archives import archive_unpack
from seamlessflow.control_plane.uploads.services.handler import ReceivedFile
from seamlessflow.control_plane.uploads.services.incoming import locked
from seamlessflow.core.artifacts.store_paths import upload_path

MAX_NAME_LENGTH = 255
CONTENT = "content"  # the name of an upload that is one file


def artifact_create(
    *, project: Project, user: User, received: ReceivedFile, is_archive: bool, author: str
) -> Artifact:
    """Move the file, or the tar's content, to the artifact store.

    Raises ApplicationError; OSError if the disk is full or the artifact store cannot be used.
    """
    if "\x00" in received.name or len(received.name) > MAX_NAME_LENGTH:
        raise field_error("file", f"the name must be at most {MAX_NAME_LENGTH} characters without NUL")
    artifact = Artifact(
        project=project, created_by=user, name=received.name, is_archive=is_archive, sha256=received.sha256
    )
    return artifact_fill(
        artifact, lambda folder: _store_received(received, folder, is_archive=is_archive), author
    )


def artifact_fill(artifact: Artifact, fill: Callable[[Path], int], author: str) -> Artifact:
    """Store a new artifact with the files that `fill` writes into an empty folder; it returns their bytes.

    Raises what `fill` raises; OSError if the disk is full or the artifact store cannot be used.
    """
    store, store_path = artifact_store(), upload_path(artifact.id)
    folder, aside = store.workspace(store_path), settings.INCOMING_DIR / str(artifact.id)
    try:
        aside.mkdir()
        with locked(aside):
            artifact.num_bytes = fill(aside)
            _tree_fsync(aside)
            folder.parent.mkdir(parents=True, exist_ok=True)
            aside.rename(folder)
            _fsync(folder.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    try:
        store.keep(store_path)
        artifact.uri = store.url_of(store_path if artifact.is_archive else f"{store_path}/{CONTENT}")
        with transaction.atomic():
            _record(artifact, author)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        store.remove(store_path)
        raise
    return artifact


def _store_received(received: ReceivedFile, aside: Path, *, is_archive: bool) -> int:
    if is_archive:
        return archive_unpack(archive=received.path, folder=aside, max_bytes=settings.MAX_UPLOAD_BYTES)
    received.path.rename(aside / CONTENT)
    return received.num_bytes


def _record(artifact: Artifact, author: str) -> None:
    artifact.save(force_insert=True)
    event_record(
        kind="artifact.created",
        subject_type=SubjectType.ARTIFACT,
        subject_id=artifact.id,
        project_id=artifact.project_id,
        author=author,
        data={"name": artifact.name, "num_bytes": artifact.num_bytes},
    )


def _tree_fsync(folder: Path) -> None:
    """Bring all files and folders to the disk, only now that all are written: waiting for each as it is written takes
    much longer."""
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            _fsync(Path(parent, name))
        _fsync(Path(parent))


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
