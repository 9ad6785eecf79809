"""Checkpoints of earlier releases continue, and are data: whatever one asks to be run is refused and not run.

A script writes one as DeepSpeed does; each of its files is then replaced by a pickle that would make a file of its own.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from seamlessflow.core.protocol.worker import Publication
from seamlessflow_workers.weights.artifacts import JobArtifacts
from tests.fixtures.trainer_harness import (
    DEADLINE_S,
    JOB,
    Planes,
    TrainerProcess,
    folder_with,
    make_spec,
    run_check,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WRITER = "tests.integration.workers.train.step.trainer_old_checkpoint"
SPEC = make_spec(num_updates=3, checkpoint_every_updates=1, zero_stage=1)
EXIT_NOT_LOADED = 2


class Trap:
    """Unpickled by a trusting reader, it makes `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self._path),)


@dataclass
class OldJob:
    """The folder of a job with a checkpoint of batch 2, and the loss that the trainer had next."""

    folder: Path
    next_loss: float


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory, trainer_model: Path) -> OldJob:
    folder = folder_with(trainer_model, tmp_path_factory.mktemp("old") / "run")
    rows = run_check([WRITER, str(trainer_model), str(checkpoint_of(folder))])
    return OldJob(folder, rows["third"]["loss"])


@pytest.fixture
def planes() -> Iterator[Planes]:
    planes = Planes(num_updates=3)
    planes.start()
    yield planes
    planes.stop()


def checkpoint_of(folder: Path) -> Path:
    return JobArtifacts((folder / "artifacts").as_uri(), JOB).checkpoints / "batch-2"


def files_of(folder: Path) -> list[Path]:
    return sorted(checkpoint_of(folder).rglob("*.pt"))


def published(version: int) -> Publication:
    return Publication(
        version=version,
        parent_version=version - 1,
        optimizer_step=version,
        batch_number=version,
        uri="",
        manifest_sha256="",
        num_bytes=0,
        metrics={},
    )


def copied(old: OldJob, job: Path) -> Path:
    shutil.copytree(old.folder, job, symlinks=True)
    return job


def log_of_a_refusal(job: Path, planes: Planes) -> str:
    trainer = TrainerProcess(job, planes, SPEC)
    try:
        code = trainer.process.wait(DEADLINE_S)
    finally:
        trainer.kill()
    log = (job / "trainer.log").read_text()
    assert code == EXIT_NOT_LOADED, log
    return log


@pytest.mark.parametrize("number, is_zip", [(0, True), (1, True), (1, False)])
def test_pickle_that_would_run_something_is_refused_and_runs_nothing(
    old: OldJob, planes: Planes, tmp_path: Path, number: int, is_zip: bool
) -> None:
    job = copied(old, tmp_path / "job")
    files, mark = files_of(job), tmp_path / "was-run"
    assert len(files) == 2, "the states of weights and of the optimizer"
    torch.save({"module": Trap(mark)}, files[number], _use_new_zipfile_serialization=is_zip)
    log = log_of_a_refusal(job, planes)
    assert f"checkpoint file {files[number]} names posix.mkdir, which no trainer saves" in log
    assert not mark.exists()
    torch.load(files[number], weights_only=False)
    assert mark.exists(), "the trap does not work: this test could not fail"


def test_damaged_file_is_one_sentence(old: OldJob, planes: Planes, tmp_path: Path) -> None:
    job = copied(old, tmp_path / "job")
    damaged = files_of(job)[0]
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert f"checkpoint file {damaged} cannot be read: " in log_of_a_refusal(job, planes)


def test_trainer_continues_an_old_checkpoint_and_leaves_one_of_today(
    old: OldJob, planes: Planes, tmp_path: Path
) -> None:
    job = copied(old, tmp_path / "job")
    planes.publications[2] = published(2)
    TrainerProcess(job, planes, SPEC).run_phase()
    assert list(planes.publications) == [2, 3]
    assert planes.publications[3].metrics["train/loss"] == old.next_loss
    written = sorted((checkpoint_of(job).with_name("batch-3") / "state").iterdir())
    assert [file.name for file in written] == ["rank-00000-of-00001.safetensors"]
