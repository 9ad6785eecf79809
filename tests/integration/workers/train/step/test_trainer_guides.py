"""Guided answers are trained under the masks that they were sampled under: as a float64 model computes them."""

from typing import Any

import pytest

from tests.fixtures.trainer_harness import run_check
from tests.integration.workers.train.step.trainer_guides_check import CASES

EXACT = [case for case in CASES if case != "adapter"]  # an adapter's gradient is not the model's

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("guided") / "model"
    return run_check(["tests.integration.workers.train.step.trainer_guides_check", str(folder)])


@pytest.mark.parametrize("case", CASES)
def test_logprobs_of_policy_and_reference_are_those_under_the_masks(rows: dict[str, Any], case: str) -> None:
    """The batch has the float64 model's logprobs as the sampler's, and the reference is the policy itself."""
    metrics = rows[case]["metrics"]
    assert metrics["train/mismatch_max"] < 1e-4
    assert abs(metrics["train/kl_reference"]) < 1e-5
    assert metrics["train/entropy"] == pytest.approx(rows[case]["entropy"], abs=1e-4)


@pytest.mark.parametrize("case", EXACT)
def test_the_gradient_is_that_under_the_masks(rows: dict[str, Any], case: str) -> None:
    assert rows[case]["metrics"]["train/grad_norm"] == pytest.approx(rows[case]["grad_norm"], rel=1e-4)


def test_answers_of_another_library_are_counted_and_train_nothing(rows: dict[str, Any]) -> None:
    whole, kept = rows["trees"], rows["another library"]
    num_left_out = kept["num_of_first_guide"]
    assert num_left_out > 0
    assert whole["metrics"]["train/num_unknown_mask_tokens"] == 0
    assert kept["metrics"]["train/num_unknown_mask_tokens"] == num_left_out
    assert kept["num_trained"] == whole["num_trained"] - num_left_out
    guided = "train/num_guided_tokens"
    assert kept["metrics"][guided] == whole["metrics"][guided] - num_left_out > 0
