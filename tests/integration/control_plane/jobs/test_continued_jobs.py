"""Jobs that continue an older one: what is taken over, what is refused, and that retention cannot take it away."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.submission.continuing import origin_resolve
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.core.job_spec import job_spec_parse
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast

pytestmark = pytest.mark.django_db(transaction=True)


def folder_of(job: Job) -> Path:
    return Path(settings.ARTIFACT_ROOT).resolve() / str(job.id)


def trained(cast: Cast, *, state: str = "cancelled", **changes: Any) -> Job:
    """Return a job that published versions 1 to 5; its checkpoints hold versions 3 and 5."""
    job = cast.job(**changes)
    Job.objects.filter(id=job.id).update(state=state, latest_version=5, published_batch=5)
    for version in range(1, 6):
        weights = folder_of(job) / "versions" / str(version)
        weights.mkdir(parents=True)
        (weights / "model-00001.safetensors").write_text(f"weights {version}")
        manifest = {"job_id": str(job.id), "version": version, "parent_version": version - 1, "shards": {}}
        (weights / "manifest.json").write_text(json.dumps(manifest))
        PolicyVersion.objects.create(
            project=job.project, job=job, version=version, batch_number=version, optimizer_step=version,
            uri=weights.as_uri(), num_bytes=9,
        )  # fmt: skip
    for batch in (3, 5):
        checkpoint = folder_of(job) / "checkpoints" / f"batch-{batch}"
        (checkpoint / "state").mkdir(parents=True)
        (checkpoint / "state" / "optimizer.pt").write_text(f"optimizer {batch}")
        progress = {"batch_number": batch, "version": batch, "optimizer_step": batch}
        progress["format_version"] = 2
        (checkpoint / "progress.json").write_text(json.dumps(progress | {"metrics": {"train/loss": 1.0}}))
    return Job.objects.get(id=job.id)


def continuing(cast: Cast, job: Job, **train: Any) -> dict[str, Any]:
    return {"train": {"num_updates": 2, "continue_from": show_id(IdKind.JOB, job.id), **train}}


def refusal(cast: Cast, **changes: Any) -> tuple[str, str]:
    num_jobs = Job.objects.count()
    with pytest.raises(ApplicationError) as refused:
        cast.job(**changes)
    assert Job.objects.count() == num_jobs
    (fault,) = refused.value.faults
    return fault.field, fault.detail


def test_a_new_job_begins_where_the_older_one_stopped(cast: Cast) -> None:
    older = trained(cast)
    job = cast.job(**continuing(cast, older))

    assert (job.latest_version, job.published_batch) == (1, 0)
    version = PolicyVersion.objects.get(job=job, version=1)
    assert (version.batch_number, version.optimizer_step, version.parent_version) == (None, 5, 0)
    weights, checkpoint = folder_of(job) / "versions" / "1", folder_of(job) / "checkpoints" / "batch-0"
    assert (version.uri, version.checkpoint_uri) == (weights.as_uri(), checkpoint.as_uri())
    manifest = (weights / "manifest.json").read_bytes()
    assert hashlib.sha256(manifest).hexdigest() == version.manifest_sha256
    assert json.loads(manifest) == {
        "job_id": str(job.id), "version": 1, "parent_version": 0, "shards": {},
    }  # fmt: skip
    assert json.loads((checkpoint / "progress.json").read_text()) == {
        "format_version": 2, "batch_number": 0, "version": 1, "optimizer_step": 5, "metrics": {},
    }  # fmt: skip


def test_nothing_that_becomes_of_the_older_job_takes_it_away(cast: Cast) -> None:
    older = trained(cast)
    before = {path: path.read_bytes() for path in folder_of(older).rglob("*") if path.is_file()}
    job = cast.job(**continuing(cast, older))
    assert before == {path: path.read_bytes() for path in folder_of(older).rglob("*") if path.is_file()}
    shutil.rmtree(folder_of(older))

    assert (folder_of(job) / "versions" / "1" / "model-00001.safetensors").read_text() == "weights 5"
    optimizer = folder_of(job) / "checkpoints" / "batch-0" / "state" / "optimizer.pt"
    assert optimizer.read_text() == "optimizer 5"


def test_the_newest_checkpoint_whose_weights_are_kept_is_taken(cast: Cast) -> None:
    older = trained(cast, state="cancelled")
    shutil.rmtree(folder_of(older) / "versions" / "5")
    job = cast.job(**continuing(cast, older))
    assert PolicyVersion.objects.get(job=job, version=1).optimizer_step == 3


@pytest.mark.parametrize("state", ["completed", "cancelled", "paused"])
def test_a_job_that_is_over_or_paused_may_be_continued(cast: Cast, state: str) -> None:
    assert cast.job(**continuing(cast, trained(cast, state=state))).latest_version == 1


def elsewhere(job: Job) -> None:
    Job.objects.filter(id=job.id).update(project=Project.objects.exclude(id=job.project_id).first())


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda job: Job.objects.filter(id=job.id).update(state="running"), "the job is running"),
        (lambda job: shutil.rmtree(folder_of(job) / "checkpoints"), "the job has no checkpoint"),
        (lambda job: PolicyVersion.objects.filter(job=job).update(deleted_at="2026-01-01T00:00Z"), "no checkpoint"),
        (elsewhere, "there is no job"),
    ],
)  # fmt: skip
def test_what_cannot_be_continued_is_refused_by_its_field(
    cast: Cast, change: Callable[[Job], object], said: str
) -> None:
    older = trained(cast)
    change(older)
    field, detail = refusal(cast, **continuing(cast, older))
    assert field == "train.continue_from"
    assert said in detail


def test_a_job_of_another_shape_is_refused_by_the_field_that_differs(cast: Cast) -> None:
    older = trained(cast)
    assert refusal(cast, **continuing(cast, older, lora={"rank": 4}))[0] == "train.lora"
    model = {"source": str(cast.model), "dtype": "bfloat16"}
    assert refusal(cast, **continuing(cast, older), model=model)[0] == "model.dtype"
    other = cast.model.with_name("other")
    shutil.copytree(cast.model, other)
    assert refusal(cast, **continuing(cast, older), model={"source": str(other)})[0] == "model.source"
    assert refusal(cast, train={"continue_from": "job_nonsense"})[0] == "train.continue_from"


def test_experts_that_the_checkpoint_has_whole_are_not_spread(cast: Cast) -> None:
    older = trained(cast)
    train = {
        **older.spec["train"],
        **continuing(cast, older)["train"],
        "num_ranks": 2,
        "parallel": {"expert": 2},
    }
    spread = job_spec_parse({**older.spec, "train": train})
    with pytest.raises(ApplicationError) as refused:
        origin_resolve(spec=spread, project_id=older.project_id, model_path=older.model_path)
    (fault,) = refused.value.faults
    assert fault.field == "train.parallel.expert"
    assert fault.detail.endswith("which has experts whole; accepted: 1")


@pytest.mark.parametrize("train", [{"num_ranks": 2}, {"zero_stage": 2}])
def test_other_ranks_may_continue(cast: Cast, train: dict[str, int]) -> None:
    assert cast.job(**continuing(cast, trained(cast), **train)).latest_version == 1


def test_a_refused_submission_leaves_no_files(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    older = trained(cast)

    def fail(**_: object) -> None:
        raise RuntimeError("the database is away")

    monkeypatch.setattr("seamlessflow.control_plane.jobs.submission.submit.event_record", fail)
    before = sorted(Path(settings.ARTIFACT_ROOT).iterdir())
    with pytest.raises(RuntimeError, match="away"):
        cast.job(**continuing(cast, older))
    assert sorted(Path(settings.ARTIFACT_ROOT).iterdir()) == before


def test_a_full_disk_is_not_called_a_deletion(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no hard links, files are copied, and that may fail."""
    older = trained(cast)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("seamlessflow.runtime.artifacts.shared_folder.os.link", full)
    monkeypatch.setattr("seamlessflow.runtime.artifacts.shared_folder.shutil.copy2", full)
    before = sorted(Path(settings.ARTIFACT_ROOT).iterdir())
    with pytest.raises(ApplicationError, match=r"cannot be taken over.*No space left on device"):
        cast.job(**continuing(cast, older))
    assert sorted(Path(settings.ARTIFACT_ROOT).iterdir()) == before


def test_a_checkpoint_that_is_deleted_meanwhile_is_refused_as_such(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = trained(cast)

    def deleted(source: str, *_: object) -> None:
        checkpoints = folder_of(older) / "checkpoints"
        if checkpoints.exists():  # as a deletion does: aside first
            checkpoints.rename(checkpoints.with_name(".aside"))
        raise FileNotFoundError(source)

    monkeypatch.setattr("seamlessflow.runtime.artifacts.shared_folder.os.link", deleted)
    with pytest.raises(ApplicationError, match="deleted in the meantime"):
        cast.job(**continuing(cast, older))


def test_a_critic_continues_only_where_there_is_one(cast: Cast) -> None:
    ppo: dict[str, Any] = {"algorithm": {"name": "ppo"}}
    field, detail = refusal(cast, **continuing(cast, trained(cast)), **ppo)
    assert field == "algorithm.advantage"
    assert "that job had none" in detail
    assert cast.job(**continuing(cast, trained(cast, **ppo)), **ppo).latest_version == 1
