"""PPO with a critic: float64, ZeRO stages and ranks, trees, a restart, and a task that is learned."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fixtures.trainer_harness import run_check
from tests.integration.workers.train.step.trainer_critic_check import OBJECTIVES, STAGES

Rows = dict[str, dict[str, Any]]
FOLDER = "tests.integration.workers.train.step"
# Which sums of float32 in another order leave alone.
COMPARED = (
    "critic_loss",
    "critic_grad_norm",
    "value_mean",
    "return_mean",
    "explained_variance",
    "kl_reference",
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def alone(trainer_model: Path) -> Rows:
    return run_check([f"{FOLDER}.trainer_critic_check", str(trainer_model)])


@pytest.fixture(scope="module")
def together(trainer_model: Path) -> Rows:
    return run_check([f"{FOLDER}.trainer_critic_check", str(trainer_model)], num_ranks=2)


def test_losses_and_gradients_of_policy_and_critic_equal_float64(alone: Rows) -> None:
    row = alone["exact"]
    assert row["loss_error"] < 1e-4
    assert row["critic_loss_error"] < 1e-4 * row["critic_loss"]
    assert row["policy_gradient_error"] < 1e-4
    assert row["critic_gradient_error"] < 1e-4
    assert row["metrics"]["train/explained_variance"] == pytest.approx(row["explained_variance"], abs=1e-4)
    assert row["metrics"]["train/advantage_mean"] == pytest.approx(0.0, abs=1e-6)
    assert row["metrics"]["train/advantage_std"] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(
    "ranks,stage", [*(("alone", stage) for stage in STAGES[1]), *(("together", stage) for stage in STAGES[2])]
)
def test_all_stages_and_ranks_learn_the_same(
    alone: Rows, ranks: str, stage: int, request: pytest.FixtureRequest
) -> None:
    expected = alone["stage 0"]["metrics"]
    row = request.getfixturevalue(ranks)[f"stage {stage}"]
    for found, known in zip(row["metrics"], expected, strict=True):
        for name in COMPARED:
            assert found[f"train/{name}"] == pytest.approx(known[f"train/{name}"], rel=1e-3, abs=1e-5), name
    assert row["metrics"][2]["train/loss"] == pytest.approx(expected[2]["train/loss"], abs=1e-4)
    assert expected[2]["train/value_clip_fraction"] > 0


@pytest.mark.parametrize("stage", STAGES[1])
def test_the_critic_learns_alone_in_its_first_updates(alone: Rows, stage: int) -> None:
    row = alone[f"stage {stage}"]
    first, second, _ = row["metrics"]
    assert row["is_policy_unchanged_at_first"]
    assert row["is_policy_trained_later"]
    assert "train/grad_norm" not in first
    assert first["train/critic_grad_norm"] > 0
    assert first["train/value_mean"] == 0.0  # its head begins with zeros
    assert second["train/value_mean"] != 0.0


@pytest.mark.parametrize("stage", [0, 3])
def test_a_restarted_trainer_goes_on_with_both_engines_to_the_bit(alone: Rows, stage: int) -> None:
    row = alone[f"restarted at stage {stage}"]
    assert row["is_equal_to_the_bit"]
    assert row["value_mean"] != 0.0
    assert (
        row["num_bytes_moved"] >= 2 * 4 * row["num_critic_parameters"]
    )  # both moments; weights may be mapped files


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_trees_teach_the_same_as_their_branches_written_out(alone: Rows, objective: str) -> None:
    row = alone[objective]
    assert row["num_tokens"][0] < row["num_tokens"][1]
    assert row["losses"][0] == pytest.approx(row["losses"][1], abs=1e-5)
    if objective == "once":
        assert row["critic_losses"][0] == pytest.approx(row["critic_losses"][1], rel=1e-4)
    else:  # a mean of targets instead of one target for each branch: the same gradient, less variance in the loss
        assert row["critic_losses"][0] < row["critic_losses"][1]
    assert row["gradient_error"] < 1e-4


def test_ppo_learns_a_small_task(trainer_model: Path) -> None:
    curve = run_check([f"{FOLDER}.trainer_ppo_learning_check", str(trainer_model)])["ppo"]["curve"]
    rewards = [row["reward/mean"] for row in curve]
    assert (
        np.mean(rewards[:3]) < 0.4
    )  # a quarter of the tokens count, and the first updates train the critic alone
    assert np.mean(rewards[-3:]) > 0.8
    assert np.mean([row["train/critic_loss"] for row in curve[-3:]]) < np.mean(
        [row["train/critic_loss"] for row in curve[:3]]
    )
