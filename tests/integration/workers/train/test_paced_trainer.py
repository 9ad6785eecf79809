"""The trainer of the benchmarks speaks as the real one does, and takes as long as it is told to."""

from pathlib import Path
from uuid import UUID

import pytest

from seamlessflow.core.protocol.child import Doing, Ended, Ready
from seamlessflow.core.protocol.worker import GangOrder
from seamlessflow.core.types.ledger import LedgerState
from seamlessflow_workers.process.rendezvous import Rendezvous
from tests.fakes.pace import VARIABLE, Pace, pace_environment
from tests.fixtures.trainer_harness import JOB, Planes, TrainerProcess, make_model, make_spec

NUM_UPDATES = 3
TOKEN_S = 0.002


def test_it_publishes_each_batch_once_in_the_stated_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in pace_environment(Pace(train_token_s=TOKEN_S)).items():
        monkeypatch.setenv(name, value)
    make_model(tmp_path / "model")
    planes = Planes(num_updates=NUM_UPDATES, flat_batches=frozenset())
    planes.start()
    spec = make_spec(num_updates=NUM_UPDATES, checkpoint_every_updates=2, minibatches=2, epochs=2)
    trainer = TrainerProcess(tmp_path, planes, spec, module="tests.fakes.paced_trainer")
    try:
        trainer.receive_until(Ready)
        trainer.begin(1)
        ended, _ = trainer.receive_until(Ended)
    finally:
        trainer.kill()
        planes.stop()

    assert ended.reason == "the job has all its updates"
    assert [p.batch_number for p in planes.publications.values()] == [1, 2, 3]
    assert [p.optimizer_step for p in planes.publications.values()] == [4, 8, 12]
    for publication in planes.publications.values():
        stated_s = TOKEN_S * publication.metrics["train/num_trained_tokens"]
        assert publication.metrics["train/step_s"] >= stated_s > 0
    assert [p.checkpoint_uri is not None for p in planes.publications.values()] == [False, True, True]


def test_steps_go_on_while_a_checkpoint_is_written_and_a_kill_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in pace_environment(Pace(checkpoint_s=1.5)).items():
        monkeypatch.setenv(name, value)
    make_model(tmp_path / "model")
    planes = Planes(num_updates=9)
    planes.start()
    spec = make_spec(num_updates=9, checkpoint_every_updates=2)
    checkpoints = tmp_path / "artifacts" / str(JOB) / "checkpoints"
    trainer = TrainerProcess(tmp_path, planes, spec, module="tests.fakes.paced_trainer")
    try:
        trainer.receive_until(Ready)
        planes.num_batches_ready = 3
        trainer.begin(1)
        while planes.latest_version < 3:
            trainer.receive_until(Doing)
        assert not (checkpoints / "batch-2").exists(), "version 3 waited for the checkpoint of batch 2"
        planes.num_batches_ready = 4  # its own checkpoint waits for the one before
        while planes.latest_version < 4:
            trainer.receive_until(Doing)
        assert (checkpoints / "batch-2").is_dir()
        assert not (checkpoints / "batch-4").exists()
        assert (checkpoints / ".saving-4").is_dir()
        trainer.kill()
        monkeypatch.delenv(VARIABLE)
        again = TrainerProcess(tmp_path, planes, spec, module="tests.fakes.paced_trainer")
        again.receive_until(Ready)
        planes.num_batches_ready = 9
        again.begin(2)
        again.receive_until(Ended)
        again.kill()
    finally:
        trainer.kill()
        planes.stop()
    numbers = [lease.number for lease in planes.leases]
    assert (numbers.count(2), numbers.count(3)) == (1, 2), "it went on behind the checkpoint of batch 2"
    assert planes.conflicts == []
    assert list(planes.publications) == list(range(1, 10))
    durable = [lease.durable_batch for lease in planes.leases]
    assert durable[:3] == [0, 0, 0]
    assert sorted(path.name for path in checkpoints.glob("batch-*")) == ["batch-8", "batch-9"]


def test_two_machines_make_each_step_in_half_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in pace_environment(Pace(train_token_s=TOKEN_S)).items():
        monkeypatch.setenv(name, value)
    make_model(tmp_path / "model")
    planes = Planes(num_updates=NUM_UPDATES, flat_batches=frozenset())
    planes.start()
    spec = make_spec(num_updates=NUM_UPDATES, checkpoint_every_updates=2, num_machines=2)
    meeting = Rendezvous.open(listen_host="127.0.0.1", advertised_host="127.0.0.1")
    trainers = [
        TrainerProcess(
            tmp_path, planes, spec, module="tests.fakes.paced_trainer", listening=meeting.listening
        )
        for _ in range(2)
    ]
    try:
        for member, trainer in enumerate(trainers):
            trainer.receive_until(Ready)
            trainer.begin(1, gang=gang_order(member, meeting.address))
        said = [trainer.receive_until(Ended)[1] for trainer in trainers]
    finally:
        for trainer in trainers:
            trainer.kill()
        meeting.close()
        planes.stop()

    assert [p.batch_number for p in planes.publications.values()] == [1, 2, 3]
    for publication in planes.publications.values():
        stated_s = TOKEN_S * publication.metrics["train/num_trained_tokens"] / 2
        assert publication.metrics["train/step_s"] >= stated_s > 0
    for of_machine in said:
        assert Doing(state=LedgerState.TRAINING) in of_machine


def gang_order(member: int, address: str) -> GangOrder:
    return GangOrder(
        gang_id=UUID(int=1), member=member, machines=["alpha", "beta"], address=address, secret="between us"
    )
