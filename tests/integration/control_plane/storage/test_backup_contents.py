"""What a back-up finds missing, what it leaves out, and how a restore handles both."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.storage.services.backups.record import record_read
from seamlessflow.control_plane.storage.services.backups.restoring import (
    _missing_handle,
    _paths_move,
    manifest_read,
)
from seamlessflow.control_plane.storage.services.backups.staging import checkpoints_stage, staging
from seamlessflow.control_plane.storage.services.backups.taking import BackupRefused, _folder_prepare, _plan
from seamlessflow.core.backup.manifest import BackupManifest, DamagedBackup, StoredFile
from tests.fixtures.control_plane import Cast
from tests.fixtures.stored_files import job_folder
from tests.integration.control_plane.storage.test_retention import file_write


def trained_job(cast: Cast, *, batches: int, forgotten: int) -> Job:
    """A job with two published versions; batches up to `forgotten` have no bytes any more."""
    job = cast.job(is_running=True)
    for number in (1, 2):
        folder = job_folder(job.id) / "versions" / str(number)
        file_write(folder / "model.safetensors", 10)
        PolicyVersion.objects.create(
            project_id=job.project_id, job=job, version=number, batch_number=number, uri=folder.as_uri(), num_bytes=10
        )  # fmt: skip
    Job.objects.filter(id=job.id).update(latest_version=2, published_batch=2)
    with connection.cursor() as cursor:
        for number in range(1, batches + 1):
            cursor.execute(
                "INSERT INTO trajectory_batch (id, project_id, job_id, number, state, payload, payload_sha256, "
                "policy_version, num_groups, num_samples, num_tokens, num_trained_tokens, lease_phase_id, lease_fence, "
                "lease_expires_at, created_at) VALUES (%s, %s, %s, %s, %s, %s, '', 0, 1, 1, 1, 1, %s, 1, now(), now())",
                [
                    *(new_id(), job.project_id, job.id, number),
                    *(("forgotten", None) if number <= forgotten else ("leased", b"x")),
                    new_id(),
                ],
            )
    return Job.objects.get(id=job.id)


def test_the_copy_omits_what_is_ahead_of_the_database_and_contains_what_the_trainer_deletes(
    cast: Cast,
) -> None:
    job = trained_job(cast, batches=3, forgotten=1)
    root = settings.ARTIFACT_ROOT.resolve()
    checkpoints = job_folder(job.id) / "checkpoints"
    for number in (2, 4):
        file_write(checkpoints / f"batch-{number}" / "state.pt", 100)
    file_write(checkpoints / ".saving-6" / "state.pt", 100)
    file_write(job_folder(job.id) / "versions" / "3" / "model.safetensors", 10)  # not announced yet

    store = artifact_store()
    with staging(store):
        record = record_read()
        staged = checkpoints_stage(store, record.live)
        assert staged == {job.id: {2, 4}}
        for path in (checkpoints / "batch-2" / "state.pt", checkpoints / "batch-2"):
            path.unlink() if path.is_file() else path.rmdir()  # its trainer goes on
        plan = _plan(record, store, staged)
        places = {file.path.removeprefix(f"{job.id}/"): file.num_bytes for file in plan.files}
    assert places == {
        "versions/1/model.safetensors": 10,
        "versions/2/model.safetensors": 10,
        "checkpoints/batch-2/state.pt": 100,
    }
    assert not (root / ".back-up").exists()


def test_a_missing_version_is_named_and_its_job_is_paused(cast: Cast) -> None:
    job = trained_job(cast, batches=2, forgotten=0)
    gone = job_folder(job.id) / "versions" / "2" / "model.safetensors"
    gone.unlink()
    gone.parent.rmdir()
    record = record_read()
    (missing,) = record.missing
    assert (missing.job_id, missing.what) == (str(job.id), "the weights of version 2")

    manifest = BackupManifest(
        made_at=datetime.now(UTC),
        artifact_root="/before",
        database=StoredFile(path="database.dump", num_bytes=0, sha256=""),
        files=[],
        missing=list(record.missing),
    )
    paused = _missing_handle(manifest)

    job.refresh_from_db()
    assert (job.desired, paused[job.name]) == ("pause", job.pause_reason)
    assert "lacks the weights of version 2" in job.pause_reason
    assert PolicyVersion.objects.get(job=job, version=2).deleted_at is not None
    assert PolicyVersion.objects.get(job=job, version=1).deleted_at is None
    assert Event.objects.filter(kind="job.desired", reason=job.pause_reason).exists()


def test_paths_are_changed_to_the_new_store(cast: Cast) -> None:
    job = trained_job(cast, batches=2, forgotten=0)
    root = settings.ARTIFACT_ROOT.resolve()
    Job.objects.filter(id=job.id).update(model_path=f"{root}/uploads/x/content")

    _paths_move(str(root), "/elsewhere/a store")

    assert (
        PolicyVersion.objects.get(job=job, version=1).uri
        == f"file:///elsewhere/a%20store/{job.id}/versions/1"
    )
    job.refresh_from_db()
    assert job.model_path == "/elsewhere/a store/uploads/x/content"
    assert job.tasks_path == str(cast.tasks), "a folder of MODEL_ROOTS stays where it is"


def test_invalid_folders_are_refused_by_name(tmp_path: Path) -> None:
    root = tmp_path / "artifacts"
    taken = tmp_path / "taken"
    file_write(taken / "holiday.jpg", 3)
    with pytest.raises(BackupRefused, match=r"is not empty \(holiday.jpg\)"):
        _folder_prepare(taken, root)
    with pytest.raises(BackupRefused, match="is inside the artifact store"):
        _folder_prepare(root / "backup", root)
    fresh = tmp_path / "fresh"
    _folder_prepare(fresh, root)
    _folder_prepare(fresh, root)  # an interrupted one is begun anew
    with pytest.raises(DamagedBackup, match="does not contain a complete back-up"):
        manifest_read(fresh)
