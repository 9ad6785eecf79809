"""The trainer of the benchmarks speaks as the real one does, and takes as long as it is told to."""

from pathlib import Path
from uuid import UUID

import pytest

from seamlessflow.core.protocol.child import Doing, Ended, Ready
from seamlessflow.core.protocol.worker import GangOrder
from seamlessflow.core.types.ledger import LedgerState
from seamlessflow_workers.process.rendezvous import Rendezvous
from tests.fakes.pace import Pace, pace_environment
from tests.fixtures.trainer_harness import Planes, TrainerProcess, make_model, make_spec

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
