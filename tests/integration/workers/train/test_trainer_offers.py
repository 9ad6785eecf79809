"""A real trainer offers what it has just published, and an engine's side takes it: the bytes of the version's files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.core.protocol.child import Ended, Ready
from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.artifacts import JobArtifacts
from seamlessflow_workers.weights.offers import OFFER_NAME
from seamlessflow_workers.weights.receiving import weights_receive
from tests.fixtures.trainer_harness import (
    DEADLINE_S,
    JOB,
    Planes,
    TrainerProcess,
    make_model,
    make_spec,
)

NUM_UPDATES = 2
EXIT_NOT_LOADED = 2

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    make_model(folder)
    return folder


@pytest.fixture
def planes() -> Iterator[Planes]:
    planes = Planes(num_updates=NUM_UPDATES)
    planes.start()
    yield planes
    planes.stop()


def started(folder: Path, model: Path, planes: Planes, transport: str) -> TrainerProcess:
    (folder / "model").symlink_to(model)
    spec = make_spec(num_updates=NUM_UPDATES, weight_transport=transport)
    return TrainerProcess(folder, planes, spec)


def shards(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}


@pytest.mark.parametrize("wanted, taken", [("auto", "ipc"), ("ipc", "ipc"), ("gloo", "gloo")])
def test_newest_version_is_had_from_the_trainer_and_older_ones_from_files(
    tmp_path: Path, model: Path, planes: Planes, wanted: str, taken: str
) -> None:
    versions = JobArtifacts((tmp_path / "artifacts").as_uri(), JOB).versions
    trainer = started(tmp_path, model, planes, wanted)
    try:
        trainer.receive_until(Ready)
        trainer.begin(1)
        trainer.receive_until(Ended)
        arrival = weights_receive(versions / "2", WeightTransport(wanted), device="cpu")
        old = weights_receive(versions / "1", WeightTransport(wanted), device="cpu")
    finally:
        trainer.kill()
    assert (arrival.transport, arrival.fallback) == (taken, "")
    assert shards(arrival.folder) == shards(versions / "2") != {}
    arrival.close()
    assert old.transport is WeightTransport.FILE
    dead = weights_receive(versions / "2", WeightTransport(wanted), device="cpu")
    assert dead.transport is WeightTransport.FILE
    assert "Connection refused" in dead.fallback


def test_files_alone_are_what_a_trainer_does_unless_told(tmp_path: Path, model: Path, planes: Planes) -> None:
    trainer = started(tmp_path, model, planes, "file")
    try:
        trainer.receive_until(Ready)
        trainer.begin(1)
        trainer.receive_until(Ended)
    finally:
        trainer.kill()
    versions = JobArtifacts((tmp_path / "artifacts").as_uri(), JOB).versions
    assert not (versions / OFFER_NAME).exists()


def test_what_needs_cuda_is_refused_on_a_processor_in_one_sentence(
    tmp_path: Path, model: Path, planes: Planes
) -> None:
    trainer = started(tmp_path, model, planes, "nccl")
    try:
        code = trainer.process.wait(DEADLINE_S)
    finally:
        trainer.kill()
    assert code == EXIT_NOT_LOADED
    log = (tmp_path / "trainer.log").read_text()
    problem = "train.weight_transport is nccl, which needs CUDA, but this trainer computes on a CPU"
    assert problem in log
