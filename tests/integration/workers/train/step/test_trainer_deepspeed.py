"""Real DeepSpeed in float32 against float64, on ragged micro-batches, in every ZeRO stage and with every algorithm."""

from typing import Any

import pytest

from tests.fixtures.trainer_harness import make_model, run_check
from tests.integration.workers.train.step.trainer_deepspeed_check import ALGORITHMS

STAGES = [f"stage {stage}" for stage in (0, 1, 2, 3)]
Row = dict[str, Any]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    model = tmp_path_factory.mktemp("model") / "model"
    make_model(model)
    return run_check(["tests.integration.workers.train.step.trainer_deepspeed_check", str(model)])


@pytest.mark.parametrize("case", STAGES + [name.value for name in ALGORITHMS])
def test_step_equals_the_float64_oracle(rows: dict[str, Row], case: str) -> None:
    row = rows[case]
    assert row["loss_error"] < 1e-4
    assert row["grad_norm_error"] < 1e-4
    assert row["worst_gradient_error"] < 1e-4 * row["grad_norm"]
    assert row["grad_norm"] > 1e-3
    if case in STAGES:
        assert row["clipped"] > 0.05  # the case is not trivial


@pytest.mark.parametrize("stage", STAGES)
def test_logprobs_of_the_current_version_match_those_of_the_sampler(rows: dict[str, Row], stage: str) -> None:
    assert 0 <= rows[stage]["mismatch_max"] < 1e-4
    assert 0 <= rows[stage]["untrained_mismatch_max"] < 1e-4


@pytest.mark.parametrize("stage", STAGES)
def test_metrics_also_cover_tokens_without_an_advantage_of_which_few_are_measured(
    rows: dict[str, Row], stage: str
) -> None:
    has_gradient_everywhere = stage == STAGES[0]  # by its KL
    assert (rows[stage]["num_measured"] == 0) == has_gradient_everywhere
    assert rows[stage]["half_flat"] == pytest.approx(rows[stage]["half_exact"], abs=1e-4)


def test_reference_model_is_loaded_only_when_its_weight_is_not_zero(
    rows: dict[str, Row],
) -> None:
    assert [rows[stage]["kl_reference"] is not None for stage in STAGES] == [True, False, False, False]
    assert rows[STAGES[0]]["kl_reference"] == pytest.approx(
        0.0, abs=1e-9
    )  # before the first update it is the policy


def test_all_weights_are_gathered_in_every_stage(rows: dict[str, Row]) -> None:
    assert {(row["num_tensors"], row["num_bytes"]) for row in rows.values()} == {
        (rows[STAGES[0]]["num_tensors"], rows[STAGES[0]]["num_bytes"])
    }
    assert (
        rows[STAGES[0]]["num_tensors"] == 2 * 11 + 3
    )  # per layer 11; embeddings, final norm and the tied head


def test_no_stage_loads_the_compiler(rows: dict[str, Row]) -> None:
    """It takes seconds of processor time at each start, and no job uses it."""
    assert not any(row["has_compiler"] for row in rows.values())
