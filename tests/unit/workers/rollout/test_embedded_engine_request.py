"""Requests to the embedded engine: what is taken, what is refused, and under which field's name."""

import json
from typing import Any

import pytest

from seamlessflow_workers.rollout.serving.request import (
    GenerateRequest,
    InvalidRequestError,
    parse_generate_body,
)


def parse(body: Any) -> GenerateRequest:
    return parse_generate_body(json.dumps(body).encode(), vocab_size=300, max_model_len=64)


def test_defaults_are_those_of_vllm_but_for_the_length() -> None:
    request = parse({"token_ids": [1], "sampling_params": {}})

    params = request.sampling_params
    assert (params.temperature, params.top_p, params.top_k, params.max_tokens) == (1.0, 1.0, 0, None)
    assert (params.logprobs, request.stream, request.packed) == (None, False, False)


def test_fields_that_change_no_token_are_taken() -> None:
    params = {"detokenize": False, "skip_special_tokens": False, "n": 1, "presence_penalty": 0, "stop": []}
    request = parse({"token_ids": [1], "sampling_params": params, "priority": 0, "kv_transfer_params": None})

    assert request.token_ids == [1]


@pytest.mark.parametrize(
    "body,field",
    [
        ([], "body"),
        ({"token_ids": [1]}, "sampling_params"),
        ({"token_ids": ["a"], "sampling_params": {}}, "token_ids[0]"),
        ({"token_ids": [300], "sampling_params": {}}, "token_ids"),
        ({"token_ids": [1] * 64, "sampling_params": {}}, "token_ids"),
        ({"token_ids": [1], "sampling_params": {}, "output_mode": "text"}, "output_mode"),
        ({"token_ids": [1], "sampling_params": {}, "features": {"mm_hashes": {}}}, "features"),
        ({"token_ids": [1], "sampling_params": {"seed": 2**64}}, "sampling_params.seed"),
        ({"token_ids": [1], "sampling_params": {"logprobs": 21}}, "sampling_params.logprobs"),
        ({"token_ids": [1], "sampling_params": {"stop_token_ids": [300]}}, "sampling_params.stop_token_ids"),
        ({"token_ids": [1], "sampling_params": {"stream_interval": 0}}, "sampling_params.stream_interval"),
        ({"token_ids": [1], "sampling_params": {"logit_bias": {"300": 1.0}}}, "sampling_params.logit_bias"),
        ({"token_ids": [1], "sampling_params": {"logit_bias": {"a": 1.0}}}, "sampling_params.logit_bias"),
        ({"token_ids": [1], "sampling_params": {"logit_bias": {"5": 101.0}}}, "sampling_params.logit_bias"),
        ({"token_ids": [1], "sampling_params": {"presence_penalty": 3}}, "sampling_params.presence_penalty"),
        (
            {"token_ids": [1], "sampling_params": {"repetition_penalty": 0}},
            "sampling_params.repetition_penalty",
        ),
        ({"token_ids": [1], "sampling_params": {"typo": 1}}, "sampling_params.typo"),
    ],
)
def test_refusal_names_the_field(body: Any, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse(body)

    assert caught.value.field == field


def test_body_that_is_no_json_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="not JSON"):
        parse_generate_body(b"{", vocab_size=300, max_model_len=64)
