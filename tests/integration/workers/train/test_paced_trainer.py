"""The trainer of the benchmarks speaks as the real one does, and takes as long as it is told to."""

from pathlib import Path

import pytest

from seamlessflow.core.protocol.child import Ended, Ready
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
    spec = make_spec(num_updates=NUM_UPDATES, checkpoint_every_updates=2)
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
    for publication in planes.publications.values():
        stated_s = TOKEN_S * publication.metrics["train/num_trained_tokens"]
        assert publication.metrics["train/step_s"] >= stated_s > 0
    assert [p.checkpoint_uri is not None for p in planes.publications.values()] == [False, True, True]
