"""Options that save memory: which go together, and the sentence that refuses the others."""

from typing import Any

import pytest

from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec, job_spec_parse
from seamlessflow.core.training.memory import gradient_dtype
from seamlessflow.core.types.dtypes import Dtype

SPREAD = {"num_ranks": 2, "parallel": {"expert": 2}}
BOTH = {"activations": True, "optimizer": True}


def parse(train: dict[str, Any], *, dtype: str = "float32") -> JobSpec:
    return job_spec_parse(
        {
            "name": "calculator",
            "model": {"source": "artifact://art_0", "dtype": dtype},
            "environment": {"name": "calculator", "tasks": "artifact://art_1"},
            "train": train,
        }
    )


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("dtype", list(Dtype))
@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_every_option_goes_with_every_stage_that_shards(stage: int, dtype: str, lora: object) -> None:
    train = {"zero_stage": stage, "gradient_checkpointing": True, "offload": BOTH, "lora": lora}

    assert parse(train, dtype=dtype).train.offload.optimizer


@pytest.mark.parametrize(
    "train,dtype,words",
    [
        (
            {"zero_stage": 0, "offload": {"optimizer": True}},
            "float32",
            "train.offload.optimizer: ZeRO stage 0",
        ),
        ({"offload": {"activations": True}}, "float32", "train.offload.activations: it moves"),
        ({"gradient_dtype": "bfloat16"}, "float32", "train.gradient_dtype: 'bfloat16' would round"),
        ({"zero_stage": 0, "gradient_dtype": "float32"}, "bfloat16", "train.gradient_dtype: ZeRO stage 0"),
        (
            {**SPREAD, "gradient_dtype": "float32"},
            "bfloat16",
            "train.gradient_dtype: gradients of spread experts",
        ),
        (
            {**SPREAD, "offload": {"optimizer": True}},
            "bfloat16",
            "train.offload.optimizer: the optimizer of spread",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(train: dict[str, Any], dtype: str, words: str) -> None:
    with pytest.raises(InvalidJobSpec) as caught:
        parse(train, dtype=dtype)

    assert words in str(caught.value)
    assert "accepted: " in str(caught.value)


@pytest.mark.parametrize(
    "stage,dtype,given,expected",
    [
        (1, "bfloat16", None, "float32"),
        (3, "bfloat16", None, "float32"),
        (0, "bfloat16", None, "bfloat16"),
        (0, "float32", None, "float32"),
        (0, "float32", "float32", "float32"),
        (2, "bfloat16", "bfloat16", "bfloat16"),
    ],
)
def test_gradients_add_up_in_float32_where_deepspeed_can(
    stage: int, dtype: str, given: str | None, expected: str
) -> None:
    spec = parse({"zero_stage": stage, "gradient_dtype": given}, dtype=dtype)

    assert gradient_dtype(spec.train, spec.model.dtype) == expected


def test_gradients_of_spread_experts_add_up_in_the_format_of_the_model() -> None:
    spec = parse(SPREAD, dtype="bfloat16")

    assert gradient_dtype(spec.train, spec.model.dtype) == "bfloat16"
