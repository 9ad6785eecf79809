"""The real trainer on trees against the same trainer on branches: same loss, same gradients, fewer tokens."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fixtures.trainer_harness import make_model, run_check

Row = dict[str, Any]
CASES = ["once", "by_leaves", "cut", "checkpointing"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    model = tmp_path_factory.mktemp("model") / "model"
    make_model(model)
    return run_check(["tests.integration.workers.train.trees.trainer_trees_check", str(model)])


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


def test_two_ranks_take_the_step_of_one_in_every_zero_stage(tmp_path: Path) -> None:
    model = tmp_path / "model"
    make_model(model)
    check = ["tests.integration.workers.train.trees.trainer_trees_check", str(model), "ranks"]
    one, two = run_check(check), run_check(check, num_ranks=2)
    assert list(two) == [f"stage {stage}" for stage in (0, 1, 2, 3)]
    expected = np.array(one["stage 0"]["moments"])
    for case, row in two.items():
        error = np.linalg.norm(np.array(row["moments"]) - expected) / np.linalg.norm(expected)
        assert error < 1e-5, case
        for name in ("train/loss", "train/entropy", "train/ratio_max", "train/ess", "train/grad_norm"):
            assert row["metrics"][name] == pytest.approx(one["stage 0"]["metrics"][name], rel=1e-4), (
                case,
                name,
            )
