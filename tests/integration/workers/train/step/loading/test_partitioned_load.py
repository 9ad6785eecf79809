"""A model loaded in parts is the one that transformers loads, and no rank holds more of it than its share."""

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.scale_out.ranks import model_write, ranks_run
from tests.fixtures.trainer_harness import run_check
from tests.integration.workers.train.step.loading.trainer_loading_check import (
    DTYPES,
    MODELS,
    NUM_TOKEN_IDS,
    SIZES,
)

Row = dict[str, Any]
CASES = [f"{name}, {dtype}{shards}" for name in MODELS for dtype in DTYPES for shards in ("", ", shards")]
SMALL = (16, 512)  # layers, width: 65 million parameters
MAX_SHARE = 0.65  # of the whole model on two ranks, with what is needed besides

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    folder = tmp_path_factory.mktemp("models")
    check = "tests.integration.workers.train.step.loading.trainer_loading_check"
    found = run_check([check, str(folder)], num_ranks=request.param)
    return {name: {**row, "num_ranks": request.param} for name, row in found.items()}


@pytest.mark.parametrize("case", CASES)
def test_a_model_loaded_in_parts_is_the_model(rows: dict[str, Row], case: str) -> None:
    row = rows[case]
    assert row["is_same"]
    assert row["has_same_buffers"]
    assert row["computes_the_same"]
    assert row["is_tied"] == case.startswith("tied")
    assert (row["num_files"] > 1) == case.endswith("shards")


@pytest.mark.parametrize("case", CASES)
def test_a_model_may_compute_as_if_its_vocabulary_were_small(rows: dict[str, Row], case: str) -> None:
    row = rows[case]
    assert row["num_logits_of_few"] == NUM_TOKEN_IDS
    assert row["error_of_few"] < (0.01 if "bfloat16" in case else 1e-6)
    assert row["padding_index"] == SIZES["pad_token_id"]


@pytest.mark.parametrize("case", CASES)
def test_a_rank_keeps_its_share_of_each_parameter(rows: dict[str, Row], case: str) -> None:
    row = rows[case]
    padding = row["num_parameters"] * (row["num_ranks"] - 1)
    assert row["whole"] <= row["share"] * row["num_ranks"] <= row["whole"] + padding
    assert row["is_empty_afterwards"]


def test_a_folder_that_does_not_fit_its_config_is_refused(rows: dict[str, Row]) -> None:
    assert rows["missing"]["refusal"].endswith("has no values for model.norm.weight")
    assert "model.norm.weight has the shape (3,) in the model's files and (24,)" in rows["shape"]["refusal"]


def test_files_that_cannot_be_read_tensor_by_tensor_are_told_apart(rows: dict[str, Row]) -> None:
    assert rows["pickle"]["can_load_in_parts"] is False


def test_no_rank_has_the_whole_model_while_it_is_loaded(tmp_path: Path) -> None:
    """Although every value is converted, from bfloat16, and trees are tried out by a forward pass.

    A quarter of this model is its embedding.
    """
    model_write(tmp_path / "model", *SMALL)

    ranks = ranks_run(tmp_path / "model", {"zero_stage": 3}, dtype="float32")

    for rank in ranks:
        assert 0.5 <= rank["loading"] / rank["whole"] <= MAX_SHARE
