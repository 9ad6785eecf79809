"""Numbers that no batch should hold: they reach neither weights nor optimizer, and stop no job."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamlessflow.core.batching.format import Batch
from seamlessflow.core.protocol.child import Ended, Ready
from seamlessflow_workers.weights.artifacts import JobArtifacts
from seamlessflow_workers.weights.manifest import manifest_read
from tests.fixtures.trainer_harness import (
    JOB,
    RECORDED,
    Planes,
    TrainerProcess,
    as_recorded,
    folder_with,
    make_spec,
    run_check,
)
from tests.integration.workers.train.step.trainer_numbers_check import CASES, without_bounds

NUM_UPDATES = 3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def rows(trainer_model: Path) -> dict[str, dict[str, Any]]:
    return run_check(["tests.integration.workers.train.step.trainer_numbers_check", str(trainer_model)])


@pytest.mark.parametrize("case", CASES)
def test_a_token_that_sampler_and_trainer_disagree_about_costs_no_update(
    rows: dict[str, Any], case: str
) -> None:
    row = rows[case]
    assert row["outlier_is_finite"]
    assert row["outlier_moves"]
    assert row["outlier_skipped"] == 0


@pytest.mark.parametrize("case", CASES)
def test_a_gradient_that_is_not_finite_is_left_out_whole(rows: dict[str, Any], case: str) -> None:
    row = rows[case]
    assert not row["infinite_moves"]
    assert (row["infinite_skipped"], row["skipped_afterwards"]) == (1, 0)
    assert row["goes_on_as_if_nothing_had_been"], "the optimizer's moments are as they were, too"
    assert row["names_are_kept"]


@pytest.mark.parametrize("case", CASES)
def test_a_batch_without_a_sample_takes_its_number_and_moves_nothing(rows: dict[str, Any], case: str) -> None:
    assert not rows[case]["empty_moves"]
    assert rows[case]["empty_is_finite"]


def test_a_job_goes_on_behind_a_batch_with_an_infinite_gradient(
    tmp_path: Path, trainer_model: Path, start_planes: Callable[..., Planes]
) -> None:
    """Checkpoints and publications are JSON, which has no word for such a metric."""

    def second_without_bounds(batch: Batch) -> Batch:
        return without_bounds(batch) if batch.header.number == 2 else batch

    planes = start_planes(num_updates=NUM_UPDATES, change=second_without_bounds)
    spec = make_spec(num_updates=NUM_UPDATES, checkpoint_every_updates=1)
    folder_with(trainer_model, tmp_path)
    for phase in (1, 2):  # the second one reads the checkpoint of that batch
        planes.num_batches_ready = 1 + phase
        trainer = TrainerProcess(tmp_path, planes, spec)
        try:
            trainer.receive_until(Ready)
            trainer.begin(phase, num_batches=3 - phase)
            trainer.receive_until(Ended)
        finally:
            trainer.kill()

    assert list(planes.publications) == list(range(1, NUM_UPDATES + 1))
    metrics = planes.publications[2].metrics
    assert metrics["train/update_skipped"] == 1
    assert all(np.isfinite(list(metrics.values())))
    versions = JobArtifacts((tmp_path / "artifacts").as_uri(), JOB).versions
    shards = [
        {name: shard.sha256 for name, shard in manifest_read(versions / str(version)).shards.items()}
        for version in (1, 2, 3)
    ]
    assert shards[0] == shards[1] != shards[2]


def test_ranks_say_nothing_of_a_sampler_where_the_data_has_none(
    tmp_path: Path, trainer_model: Path, start_planes: Callable[..., Planes]
) -> None:
    """Recorded trajectories are of other jobs' policies; each rank knows, so their sum has to."""
    names = []
    for num_ranks in (1, 2):
        planes = start_planes(num_updates=1, change=as_recorded)
        spec = {**make_spec(num_updates=1, num_ranks=num_ranks, zero_stage=2), **RECORDED}
        folder = folder_with(trainer_model, tmp_path / str(num_ranks))
        TrainerProcess(folder, planes, spec).run_phase()
        names.append(set(planes.publications[1].metrics))

    assert names[0] == names[1]
    assert "train/loss" in names[0]
    assert not names[0] & {"train/ratio_mean", "train/kl_behaviour", "train/ess", "train/mismatch_mean"}
