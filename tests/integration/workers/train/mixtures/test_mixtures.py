"""Mixtures of experts through trainer, published files and engine: exact gradients, equal logprobs, the same routes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.fakes.mixture_models import FAMILIES, NUM_EXPERTS, NUM_LAYERS
from tests.fixtures.trainer_harness import run_check
from tests.integration.workers.train.mixtures import expert_elastic_check, expert_ranks_check, mixture_check
from tests.integration.workers.train.mixtures.mixture_loop_check import NUM_UPDATES

CASES = [f"{family}, stage {stage}" for family, stage in mixture_check.CASES]
SPREAD = list(expert_ranks_check.CASES)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    run_check(["tests.fakes.mixture_models", str(folder)])
    return folder


@pytest.fixture(scope="module")
def rows(models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("versions")
    return run_check(["tests.integration.workers.train.mixtures.mixture_check", str(models), str(folder)])


@pytest.mark.parametrize("case", CASES)
def test_step_equals_the_float64_oracle(rows: dict[str, Any], case: str) -> None:
    row = rows[case]
    assert row["loss_error"] < 1e-6
    assert row["grad_norm_error"] < 1e-6
    assert row["worst_gradient_error"] < 1e-6 * row["grad_norm"]
    assert row["grad_norm"] > 1e-2


@pytest.mark.parametrize("case", CASES)
def test_engine_with_the_published_files_computes_what_the_trainer_does(
    rows: dict[str, Any], case: str
) -> None:
    row = rows[case]
    assert row["logprob_error"] < 1e-4
    assert row["logprob_change"] > 0.1, "training changed nothing that could differ"
    assert row["is_routed_alike"]
    assert row["num_choices"] > 2


@pytest.mark.parametrize("case", CASES)
def test_version_has_the_names_of_the_model_folder(rows: dict[str, Any], case: str) -> None:
    """Only a tied head comes in addition, and what predicts further tokens is left out."""
    row = rows[case]
    assert row["added"] == (["lm_head.weight"] if "qwen" in case else [])
    assert bool(row["left_out"]) == ("deepseek" in case)
    assert all(name.startswith(f"model.layers.{NUM_LAYERS}.") for name in row["left_out"])


def test_frozen_routers_stay_and_everything_else_is_trained(rows: dict[str, Any]) -> None:
    row = rows["frozen routers"]
    assert not any(name.endswith(".gate.weight") for name in row["changed"])
    assert any(".experts." in name for name in row["changed"])
    assert "model.embed_tokens.weight" in row["changed"]
    assert row["is_resumed"]


ATTENTION = {
    "qwen3_moe": ["k_proj", "o_proj", "q_proj", "v_proj"],
    "deepseek_v3": ["kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "q_a_proj", "q_b_proj"],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_adapter_changes_attention_and_is_merged_by_the_engine(rows: dict[str, Any], family: str) -> None:
    row = rows[f"{family}, adapter"]
    assert row["layers"] == ATTENTION[family]
    assert row["logprob_error"] < 1e-4
    assert row["logprob_change"] > 0.01
    assert row["is_routed_alike"]


def test_correction_of_a_router_is_never_rounded(rows: dict[str, Any]) -> None:
    row = rows["bfloat16"]
    assert row["wide"] == [f"model.layers.{NUM_LAYERS - 1}.mlp.gate.e_score_correction_bias"]
    assert row["differing"] == []
    assert row["num_tensors"] > 3 * NUM_EXPERTS


@pytest.fixture(scope="module")
def spread(models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    check = "tests.integration.workers.train.mixtures.expert_ranks_check"
    folder = tmp_path_factory.mktemp("spread")
    return run_check([check, str(models), str(folder)], num_ranks=2)


@pytest.mark.parametrize("case", SPREAD)
def test_experts_spread_over_two_ranks_get_the_gradients_of_one(spread: dict[str, Any], case: str) -> None:
    row = spread[case]
    assert row["loss_error"] < 1e-6
    assert row["grad_norm_error"] < 1e-6
    assert row["worst_gradient_error"] < 1e-6 * row["grad_norm"]
    assert row["share_of_numbers"] < 0.95, "each rank has some experts only"


@pytest.mark.parametrize("case", SPREAD)
def test_spread_experts_are_published_as_the_model_folder_has_them(spread: dict[str, Any], case: str) -> None:
    assert spread[case]["is_published_as_stored"]


def test_trainer_of_several_processes_publishes_the_experts_of_all(models: Path, tmp_path: Path) -> None:
    check = "tests.integration.workers.train.mixtures.spread_publication_check"
    row = run_check([check, str(models / "deepseek_v3"), str(tmp_path)])["two processes"]
    assert row["is_as_stored"]
    assert row["num_experts_tensors"] == NUM_EXPERTS * len(("gate", "up", "down"))


@pytest.mark.parametrize("case", SPREAD)
def test_spread_experts_go_on_from_a_checkpoint_to_the_bit(spread: dict[str, Any], case: str) -> None:
    assert spread[case]["is_resumed_to_the_bit"]


def test_spread_experts_go_on_from_a_checkpoint_over_more_ranks(models: Path, tmp_path: Path) -> None:
    """With the same weights to the bit; the next step adds up in another order."""
    check = [expert_elastic_check.__name__, str(models), str(tmp_path)]
    run_check([*check, "write"], num_ranks=2)
    for case in run_check([*check, "read"], num_ranks=4):
        written, read = (load_file(tmp_path / f"{case}.{what}") for what in ("write", "read"))
        assert written.keys() == read.keys()
        for name in (name.removeprefix("before/") for name in written if name.startswith("before/")):
            before, after = written[f"before/{name}"], written[f"after/{name}"]
            assert torch.equal(read[f"before/{name}"], before)
            change, error = (after - before).abs().mean(), (read[f"after/{name}"] - after).abs().mean()
            assert error <= 1e-2 * change


@pytest.fixture(scope="module")
def loops(models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    check, folder = (
        "tests.integration.workers.train.mixtures.mixture_loop_check",
        tmp_path_factory.mktemp("loops"),
    )
    return run_check([check, str(models), str(folder)])


@pytest.mark.parametrize("family", FAMILIES)
def test_policy_learns_while_its_engine_is_updated_in_place(loops: dict[str, Any], family: str) -> None:
    row = loops[family]
    assert row["last"] > row["first"] + 0.3
    assert row["mismatch_max"] < 1e-4, "the engine sampled from other weights than were trained"
    assert row["num_mismatches"] == NUM_UPDATES
