"""Options that save memory change no number: loading in parts, a head in chunks, activations and optimizer on the host.

Real DeepSpeed on one rank and on two, with a reference, KL and entropy in the loss.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.trainer_harness import run_check
from tests.integration.workers.train.step.trainer_memory_check import CASES, SUMS

Row = dict[str, Any]
RELATIVE = 1e-6  # to the largest gradient; float32 has 1.2e-7

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def rows(request: pytest.FixtureRequest, trainer_model: Path) -> dict[str, Row]:
    check = "tests.integration.workers.train.step.trainer_memory_check"
    return run_check([check, str(trainer_model)], num_ranks=request.param)


@pytest.mark.parametrize("case", CASES)
def test_gradients_and_losses_are_those_of_the_plain_step(rows: dict[str, Row], case: str) -> None:
    row = rows[case]
    assert row["gradients"] < RELATIVE
    for metric in ("train/loss", "train/kl_reference", "train/entropy", "train/grad_norm"):
        assert row[metric] < 10 * RELATIVE * row["largest"], metric


def test_all_options_together_equal_the_float64_oracle(rows: dict[str, Row]) -> None:
    assert rows["float64"]["gradients"] < 1e-5
    assert rows["float64"]["train/loss"] < 1e-5


@pytest.mark.parametrize("case", SUMS)
def test_gradients_of_bfloat16_models_add_up_in_float32_unless_told_otherwise(
    rows: dict[str, Row], case: str
) -> None:
    if case.startswith("float32"):
        assert rows[case]["gradients"] < RELATIVE
    else:
        assert rows[case]["gradients"] > 1e-4
