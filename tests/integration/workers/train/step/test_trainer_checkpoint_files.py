"""Files of a checkpoint are data: whatever one asks to be run, the trainer refuses it and runs nothing.

A real trainer leaves its checkpoint; each of its files is then replaced by a pickle that would make a file of its own.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from seamlessflow.core.protocol.child import Ended, Ready
from seamlessflow_workers.weights.artifacts import JobArtifacts
from tests.fixtures.trainer_harness import (
    DEADLINE_S,
    JOB,
    Planes,
    TrainerProcess,
    make_model,
    make_spec,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SPEC = make_spec(num_updates=2, checkpoint_every_updates=1, zero_stage=1)
EXIT_NOT_LOADED = 2


class Trap:
    """Unpickled by a trusting reader, it makes `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self._path),)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a job whose trainer is gone and left checkpoints of batches 1 and 2."""
    folder = tmp_path_factory.mktemp("run")
    make_model(folder / "model")
    planes = Planes(num_updates=2)
    planes.start()
    trainer = TrainerProcess(folder, planes, SPEC)
    try:
        trainer.receive_until(Ready)
        trainer.begin(1)
        trainer.receive_until(Ended)
    finally:
        trainer.kill()
        planes.stop()
    return folder


@pytest.fixture
def planes() -> Iterator[Planes]:
    planes = Planes(num_updates=2)
    planes.start()
    yield planes
    planes.stop()


def checkpoint_files(folder: Path) -> list[Path]:
    newest = JobArtifacts((folder / "artifacts").as_uri(), JOB).checkpoints / "batch-2"
    return sorted(newest.rglob("*.pt"))


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
    folder: Path, planes: Planes, tmp_path: Path, number: int, is_zip: bool
) -> None:
    job = tmp_path / "job"
    shutil.copytree(folder, job)
    files, mark = checkpoint_files(job), tmp_path / "was-run"
    assert len(files) == 2, "the states of weights and of the optimizer"
    torch.save({"module": Trap(mark)}, files[number], _use_new_zipfile_serialization=is_zip)
    log = log_of_a_refusal(job, planes)
    assert f"checkpoint file {files[number]} names posix.mkdir, which no trainer saves" in log
    assert not mark.exists()
    torch.load(files[number], weights_only=False)
    assert mark.exists(), "the trap does not work: this test could not fail"


def test_damaged_file_is_one_sentence(folder: Path, planes: Planes, tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(folder, job)
    damaged = checkpoint_files(job)[0]
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert f"checkpoint file {damaged} cannot be read: " in log_of_a_refusal(job, planes)
