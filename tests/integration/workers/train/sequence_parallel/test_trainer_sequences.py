"""Ranks that share sequences against one rank: the same loss and gradients, whatever is trained."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForCausalLM, LlamaConfig, MambaConfig, MistralConfig, PretrainedConfig

from seamlessflow_workers.train.sequence_parallel.collectives import SequenceGroup
from seamlessflow_workers.train.sequence_parallel.support import SequenceRefused, sequence_attention_enable
from tests.fixtures.exact_models import SIZES
from tests.fixtures.trainer_harness import run_check
from tests.integration.workers.train.sequence_parallel.trainer_sequence_gradients import CASES
from tests.integration.workers.train.sequence_parallel.trainer_sequence_steps import CASES as STEP_CASES

Row = dict[str, Any]
STEPS = "tests.integration.workers.train.sequence_parallel.trainer_sequence_steps"
CASES_OF_FOUR = ("trees", "branches, ratios of sequences", "KL and entropy")
STEPS_OF_FOUR = ["stage 0", "stage 1", "stage 3", "KL in the reward"]
# Of gradients, and relative and absolute ones of metrics: eight bits of precision; several steps of Adam.
TOLERANCES = {"bfloat16": (0.02, 0.05, 0.01), "mini-batches": (1e-3, 1e-3, 1e-6)}
PADDED = {"train/num_computed_tokens", "train/num_measured_tokens"}
GRADIENTS = "tests.integration.workers.train.sequence_parallel.trainer_sequence_gradients"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pair() -> dict[str, Row]:
    """Two ranks that share all sequences."""
    return run_check([GRADIENTS, "2"], num_ranks=2)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_have_the_gradients_of_one_in_float64(pair: dict[str, Row], case: str) -> None:
    row = pair[case]
    assert row["gradient_norm"] > 1e-3, "the case is not trivial"
    assert row["loss_error"] < 1e-12
    assert row["gradient_error"] < 1e-10
    least, most = row["num_micro_batches"]
    assert least == most
    assert (most > 1) == (case != "one large tree")
    least_predictions, most_predictions = row["num_predictions"]
    assert least_predictions > 0
    assert most_predictions - least_predictions <= most + 1, "the first micro-batch is computed twice"


def test_two_groups_of_two_divide_the_batch_and_share_its_sequences() -> None:
    rows = run_check([GRADIENTS, "2", *CASES_OF_FOUR], num_ranks=4)
    assert list(rows) == list(CASES_OF_FOUR)
    for case, row in rows.items():
        assert row["gradient_error"] < 1e-10, case
        assert row["loss_error"] < 1e-12, case
        least, most = row["num_micro_batches"]
        assert least == most, case


def test_layers_that_look_at_neighbours_are_refused_by_all_ranks(pair: dict[str, Row]) -> None:
    for reason in pair["a token shift"]["refused"]:
        assert "train.parallel.sequence is 2" in reason
        assert "computes other logits on slices of a row than on the row" in reason


@pytest.fixture(scope="module")
def alone(trainer_model: Path) -> dict[str, Row]:
    return run_check([STEPS, str(trainer_model), "1", *STEP_CASES])


@pytest.mark.parametrize("num_ranks, cases", [(2, [*STEP_CASES]), (4, STEPS_OF_FOUR)])
def test_a_step_of_ranks_that_share_sequences_is_that_of_one_rank(
    trainer_model: Path, alone: dict[str, Row], num_ranks: int, cases: list[str]
) -> None:
    together = run_check([STEPS, str(trainer_model), "2", *cases], num_ranks=num_ranks)
    assert list(together) == cases
    for case, row in together.items():
        expected = np.array(alone[case]["moments"])
        error = np.linalg.norm(np.array(row["moments"]) - expected) / np.linalg.norm(expected)
        most, rel, least = TOLERANCES.get(case, (1e-5, 1e-4, 1e-7))
        assert error < most, case
        ours, theirs = row["metrics"], alone[case]["metrics"]
        assert ours.keys() == theirs.keys(), case
        for name in ours.keys() - PADDED:
            if not name.startswith("perf/") and not name.endswith("_s"):
                assert ours[name] == pytest.approx(theirs[name], rel=rel, abs=least), (case, name)
        # Each token counts once, whichever ranks computed it, and so does what was added to share rows equally.
        for name in PADDED & ours.keys():
            assert theirs[name] <= ours[name] < 1.2 * theirs[name] + 1, (case, name)


def refusal(config: PretrainedConfig, *, size: int, num_path_tokens: int = 64) -> str:
    model = AutoModelForCausalLM.from_config(config)
    before = model.config._attn_implementation
    with pytest.raises(SequenceRefused) as caught:
        sequence_attention_enable(
            model, SequenceGroup(size, 0), is_tree=False, num_path_tokens_max=num_path_tokens
        )
    assert model.config._attn_implementation == before
    return str(caught.value)


def test_what_cannot_be_shared_is_refused_by_name_before_any_rank_is_asked() -> None:
    assert refusal(LlamaConfig(**SIZES), size=3) == (
        "train.parallel.sequence is 3, but LlamaForCausalLM has 4 attention heads; accepted: 1, 2, 4"
    )
    stretched = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
    assert "'dynamic' scales positions by the length" in refusal(
        LlamaConfig(**SIZES, rope_parameters=stretched), size=2
    )
    assert "sliding window of 16 tokens is shorter than model.max_model_len, 64" in refusal(
        MistralConfig(**SIZES, sliding_window=16), size=2
    )
    state = MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, state_size=4)
    assert "has no single number of attention heads" in refusal(state, size=2)
