"""The real trainer on trees against the same trainer on branches: same loss, same gradients, fewer tokens."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.integration.trainer_harness import child_environment, make_model

Row = dict[str, Any]
CASES = ["once", "by_leaves", "cut", "checkpointing"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    model = tmp_path_factory.mktemp("model") / "model"
    make_model(model)
    result = subprocess.run(
        [sys.executable, "-m", "tests.integration.trainer_trees_check", model],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"case"')]
    return {row["case"]: row for row in lines}


@pytest.mark.parametrize("case", CASES)
def test_a_step_on_trees_is_the_step_on_branches(rows: dict[str, Row], case: str) -> None:
    assert rows[case]["loss_error"] < 1e-6
    assert rows[case]["gradient_error"] < 1e-5
    assert rows[case]["clipped"] > 0.05  # the case is not trivial


def test_bfloat16_stays_within_its_rounding(rows: dict[str, Row]) -> None:
    assert rows["bfloat16"]["loss_error"] < 1e-3
    assert rows["bfloat16"]["gradient_error"] < 0.02


def test_objectives_differ_where_answers_are_shared(rows: dict[str, Row]) -> None:
    assert abs(rows["once"]["loss"] - rows["by_leaves"]["loss"]) > 1e-4


@pytest.mark.parametrize("case", CASES)
def test_trees_hold_and_compute_fewer_tokens(rows: dict[str, Row], case: str) -> None:
    (tree, linear), (tree_written_out, linear_written_out) = (
        rows[case]["num_tokens"],
        rows[case]["num_linear_tokens"],
    )
    assert tree < linear == tree_written_out == linear_written_out
    tree_computed, linear_computed = rows[case]["num_computed_tokens"]
    assert tree_computed < linear_computed
    assert (rows[case]["num_micro_batches"] > 1) == (case == "cut")
