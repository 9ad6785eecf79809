"""Makes an artifact from a received file. Invariant: an artifact is whole or absent, on disk and in the table."""

import os
import shutil
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import transaction

from seamlessflow.control_plane.accounts.models import Project, User
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record
from seamlessflow.control_plane.uploads.archives import archive_unpack
from seamlessflow.control_plane.uploads.handler import ReceivedFile
from seamlessflow.control_plane.uploads.incoming import locked
from seamlessflow.control_plane.uploads.models import Artifact

MAX_NAME_LENGTH = 255


def artifact_create(
    *, project: Project, user: User, received: ReceivedFile, is_archive: bool, author: str
) -> Artifact:
    """Move the file, or what the tar holds, to its place. Raises ApplicationError; OSError when the disk is full."""
    if "\x00" in received.name or len(received.name) > MAX_NAME_LENGTH:
        raise field_error("file", f"the name must be at most {MAX_NAME_LENGTH} characters without NUL")
    artifact_id = new_id()
    folder = settings.ARTIFACT_ROOT / "uploads" / str(artifact_id)
    aside = settings.INCOMING_DIR / str(artifact_id)
    try:
        aside.mkdir()
        with locked(aside):
            num_bytes = _place(received, aside, is_archive=is_archive)
            folder.parent.mkdir(exist_ok=True)
            aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    content = folder if is_archive else folder / "content"
    try:
        with transaction.atomic():
            return _record(artifact_id, project, user, received, content, num_bytes, is_archive, author)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _place(received: ReceivedFile, aside: Path, *, is_archive: bool) -> int:
    if is_archive:
        num_bytes = archive_unpack(archive=received.path, folder=aside, max_bytes=settings.MAX_UPLOAD_BYTES)
    else:
        received.path.rename(aside / "content")
        num_bytes = received.num_bytes
    _fsync(aside)
    return num_bytes


def _record(
    artifact_id: UUID,
    project: Project,
    user: User,
    received: ReceivedFile,
    content: Path,
    num_bytes: int,
    is_archive: bool,
    author: str,
) -> Artifact:
    artifact = Artifact.objects.create(
        id=artifact_id,
        project=project,
        created_by=user,
        name=received.name,
        uri=content.as_uri(),
        is_archive=is_archive,
        num_bytes=num_bytes,
        sha256=received.sha256,
    )
    event_record(
        kind="artifact.created",
        subject_type=SubjectType.ARTIFACT,
        subject_id=artifact.id,
        project_id=project.id,
        author=author,
        data={"name": artifact.name, "num_bytes": num_bytes},
    )
    return artifact


def _fsync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
