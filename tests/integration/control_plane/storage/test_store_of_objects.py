"""The control plane with its files in S3: uploads, versions, retention, back-ups, and jobs that continue others."""

import json
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.conf import settings as django_settings
from django.utils import timezone
from pytest_django import Settings

from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.policies.services.versions import versions_prune_job
from seamlessflow.control_plane.storage.services.backups.record import record_read
from seamlessflow.control_plane.storage.services.backups.restoring import _files_copy as files_restore
from seamlessflow.control_plane.storage.services.backups.staging import checkpoints_stage, staging
from seamlessflow.control_plane.storage.services.backups.taking import _files_copy, _plan, root_recorded
from seamlessflow.control_plane.storage.services.measuring import _checkpoints_stored
from seamlessflow.control_plane.trajectories.models import Batch
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.control_plane.uploads.services.artifacts import artifact_fill
from seamlessflow.core.artifacts.store_paths import checkpoint_path, job_path, upload_path, version_path
from seamlessflow.core.backup.manifest import FILES_NAME, BackupManifest, StoredFile
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, model_folder
from tests.fixtures.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

PROGRESS = json.dumps({"format_version": 2, "batch_number": 3, "version": 3, "optimizer_step": 3})
OPTIMIZER = "the optimizer"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def in_objects(
    cast: Cast,
    s3_server: S3Server,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Cast:
    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SEAMLESSFLOW_CACHE_DIR", str(tmp_path / "cache"))
    settings.ARTIFACT_ROOT_URL = s3_server.root(tmp_path.name)
    settings.ARTIFACT_ROOT = tmp_path / "cache" / "files"
    settings.INCOMING_DIR = settings.ARTIFACT_ROOT / "incoming"
    settings.INCOMING_DIR.mkdir(parents=True)
    return cast


def uploaded_model(cast: Cast) -> str:
    def fill(folder: Path) -> int:
        model_folder(folder / "a model")
        return 4

    owner = cast.owner
    made = Artifact(project=owner.project, created_by=owner.user, name="m", is_archive=True, sha256="0" * 64)
    return f"artifact://{show_id(IdKind.ARTIFACT, artifact_fill(made, fill, 'olga').id)}"


def keep(store_path: str, files: dict[str, str]) -> str:
    store = artifact_store()
    for name, text in files.items():
        path = store.workspace(store_path) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    store.keep(store_path)
    return store.url_of(store_path)


def trained(cast: Cast) -> Job:
    """Return a job with versions 1 to 3 and a checkpoint of batch 3, whose model is an upload."""
    job = cast.job(model={"source": uploaded_model(cast), "max_model_len": 64})
    for number in (1, 2, 3):
        manifest = json.dumps({"job_id": str(job.id), "version": number, "shards": {}})
        url = keep(version_path(job.id, number), {"manifest.json": manifest, "shard": f"weights {number}"})
        PolicyVersion.objects.create(
            project=job.project, job=job, version=number, batch_number=number, uri=url, num_bytes=9
        )
    keep(checkpoint_path(job.id, 3), {"progress.json": PROGRESS, "state/optimizer": OPTIMIZER})
    Job.objects.filter(id=job.id).update(state="cancelled", latest_version=3, published_batch=3)
    return Job.objects.get(id=job.id)


def applied_batch(job: Job, number: int) -> None:
    """Record a batch that the job's checkpoint contains."""
    now = timezone.now()
    Batch.objects.create(
        id=uuid4(),
        project=job.project,
        job=job,
        number=number,
        state="applied",
        policy_version=number - 1,
        num_groups=1,
        num_samples=1,
        num_tokens=1,
        num_trained_tokens=1,
        lease_phase_id=uuid4(),
        lease_fence=1,
        lease_expires_at=now,
        created_at=now,
    )


def test_a_job_records_its_uploaded_model_so_that_every_host_finds_it(in_objects: Cast) -> None:
    job = in_objects.job(model={"source": uploaded_model(in_objects), "max_model_len": 64})
    (artifact,) = Artifact.objects.all()

    assert job.model_path == f"{django_settings.ARTIFACT_ROOT_URL}/uploads/{artifact.id}/a%20model"
    assert PolicyVersion.objects.get(job=job).uri == job.model_path
    assert job.tasks_path == str(in_objects.tasks), "a file of MODEL_ROOTS, which every host must have"


def test_training_on_several_machines_needs_a_folder_and_says_so(in_objects: Cast) -> None:
    with pytest.raises(
        ApplicationError, match=r"one checkpoint together.*must be a folder.*it is s3://"
    ) as refused:
        in_objects.job(train={"num_updates": 2, "num_machines": 2})
    assert refused.value.faults[0].field == "train.num_machines"


def test_retention_and_measuring_work_on_objects(in_objects: Cast) -> None:
    job = trained(in_objects)
    assert _checkpoints_stored(job.id) == {3: len(PROGRESS) + len(OPTIMIZER)}

    assert versions_prune_job(job_id=job.id, keep=1) == 2

    store = artifact_store()
    assert [store.exists(version_path(job.id, number)) for number in (1, 2, 3)] == [False, False, True]


def test_a_job_continues_another_by_copies_inside_the_store(in_objects: Cast) -> None:
    older = trained(in_objects)
    job = in_objects.job(
        model={"source": older.resolved_spec.model.source, "max_model_len": 64},
        train={"num_updates": 2, "continue_from": show_id(IdKind.JOB, older.id)},
    )
    store = artifact_store()
    store.remove(job_path(older.id))

    version = PolicyVersion.objects.get(job=job, version=1)
    store_path = store.path_of(version.uri)
    assert store_path == version_path(job.id, 1)
    assert b"".join(store.read(store_path, "shard")) == b"weights 3"
    progress = json.loads(b"".join(store.read(checkpoint_path(job.id, 0), "progress.json")))
    assert (progress["batch_number"], progress["version"], progress["optimizer_step"]) == (0, 1, 3)


def test_a_back_up_copies_the_objects_and_a_restore_brings_them_back(
    in_objects: Cast, tmp_path: Path
) -> None:
    job, said = trained(in_objects), list[str]()
    Job.objects.filter(id=job.id).update(state="running")
    applied_batch(job, 3)
    store, folder = artifact_store(), tmp_path / "back-up"
    with staging(store):
        record = record_read()
        staged = checkpoints_stage(store, record.live)
        store.remove(checkpoint_path(job.id, 3))  # its trainer goes on
        files = _files_copy(_plan(record, store, staged), store, folder / FILES_NAME, said.append)
    (artifact,) = Artifact.objects.all()
    kept = {upload_path(artifact.id), version_path(job.id, 3), checkpoint_path(job.id, 3)}
    assert all(any(file.path.startswith(f"{store_path}/") for file in files) for store_path in kept)
    assert not [name for name in store.entries() if name.startswith(".")], "nothing staged is left"
    for store_path in (job_path(job.id), "uploads"):
        store.remove(store_path)
    assert store.entries() == []

    manifest = BackupManifest(
        made_at=job.created_at,
        artifact_root=root_recorded(store),
        database=StoredFile(path="database.dump", num_bytes=0, sha256=""),
        files=files,
    )
    files_restore(folder, store, manifest, said.append)

    assert all(store.exists(store_path) for store_path in kept)
    assert b"".join(store.read(checkpoint_path(job.id, 3), "state/optimizer")) == OPTIMIZER.encode()
    assert UUID(store.entries()[0]) == job.id
