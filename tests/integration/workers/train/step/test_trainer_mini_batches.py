"""Several optimizer steps per batch: float64, what is computed for them, repetition to the bit, and two ranks."""

from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.trainer_harness import run_check
from tests.integration.workers.train.step.trainer_mini_batches_check import CASES, REPEATED

Rows = dict[str, dict[str, Any]]
CHECK = "tests.integration.workers.train.step.trainer_mini_batches_check"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, trainer_model: Path) -> Rows:
    return run_check([CHECK, str(trainer_model), str(tmp_path_factory.mktemp("alone"))])


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory, trainer_model: Path) -> Rows:
    return run_check([CHECK, str(trainer_model), str(tmp_path_factory.mktemp("together"))], num_ranks=2)


@pytest.mark.parametrize(
    "case,ranks", [*((case, "alone") for case in CASES), *((case, "together") for case in REPEATED)]
)
def test_all_steps_of_a_batch_equal_the_float64_model(
    case: str, ranks: str, request: pytest.FixtureRequest
) -> None:
    row = request.getfixturevalue(ranks)[case]
    metrics, expected = row["metrics"], row["expected"]
    assert row["weights_error"] < 1e-3
    if case == "against the sampler":  # which is not the policy that the batch starts from
        assert "train/kl_start" not in metrics
        expected = {name: value for name, value in expected.items() if "kl_start" not in name}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-4, rel=1e-4)
    train, _ = CASES[case]
    num_steps = train.get("minibatches", 1) * train.get("epochs", 1)
    assert metrics["train/num_optimizer_steps"] == num_steps
    assert expected["train/clip_fraction_last"] > 0


@pytest.mark.parametrize("ranks", ["alone", "together"])
@pytest.mark.parametrize("case", REPEATED)
def test_a_batch_that_was_cut_off_in_its_middle_is_repeated_to_the_bit(
    case: str, ranks: str, request: pytest.FixtureRequest
) -> None:
    row = request.getfixturevalue(ranks)[case]
    assert row["is_killed_in_between"]
    assert row["is_repeated_to_the_bit"]


def test_the_policy_is_computed_again_only_for_what_is_trained_later(alone: Rows) -> None:
    """The logprobs of the first mini-batch are those of its own pass; a ratio to the sampler needs none."""
    for case, (train, _) in CASES.items():
        row = alone[case]
        num_passes = train.get("epochs", 1) * int(row["metrics"]["train/num_micro_batches"])
        num_again = row["num_calls"] - num_passes
        assert (num_again > 0) == (case in REPEATED), case
        assert num_again < int(row["metrics"]["train/num_micro_batches"])
