"""Fields of a chat completion: which are recorded, which are ignored by name, and which values are refused."""

import json
from typing import Any

import pytest

from seamlessflow.core.trajectory.asked_sampling import AskedSampling
from seamlessflow.core.trajectory.resume import AnswerProgress
from seamlessflow.data_plane.dialects.chat.request import ChatRequest, chat_request_parse
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.routes.turns import MAX_IGNORED_NAMED, ignored_header


def parsed(**fields: Any) -> ChatRequest:
    body = {"messages": [{"role": "user", "content": "?"}], **fields}
    return chat_request_parse(json.dumps(body).encode(), temperature=1.0)


def test_a_seed_is_recorded_beside_the_values_that_the_job_overrides() -> None:
    assert parsed().flags == {}
    assert parsed(seed=7, temperature=0.2, top_p=1).flags == {"seed": 7, "overridden": {"temperature": 0.2}}


def test_known_fields_are_not_ignored() -> None:
    request = parsed(model="gpt-x", n=2, stream=True, stream_options={"include_usage": True}, max_tokens=3)

    assert (request.ignored, request.options.has_usage, request.num_choices) == ((), True, 2)


def test_unknown_fields_are_named() -> None:
    request = parsed(
        user="u",
        metadata={"a": 1},
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
    )

    assert request.ignored == ("user", "metadata", "stream_options.include_obfuscation")
    assert request.options.has_usage


def test_names_that_do_not_fit_in_a_header_are_counted() -> None:
    assert ignored_header(()) == []
    assert ignored_header(("user", "a\r\nset-cookie: b", "ü")) == [
        (b"x-seamlessflow-ignored", b"user, 2 more")
    ]
    many = tuple(f"field_{number}" for number in range(MAX_IGNORED_NAMED + 1))
    ((_, text),) = ignored_header(many)
    assert text.endswith(b"field_19, 1 more")


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -1}, {"temperature": 2.01}, {"top_p": -0.1}, {"top_p": 1.1}, {"top_k": -2}, {"min_p": 1.1},
    ],
)  # fmt: skip
def test_an_invalid_value_is_refused_although_the_job_overrides_it(fields: dict[str, Any]) -> None:
    ((name, value),) = fields.items()
    with pytest.raises(ApiError) as refused:
        parsed(**fields)

    assert (refused.value.status, refused.value.param) == (400, name)
    assert refused.value.message.startswith(f"{name} must be from ")
    assert str(value) in refused.value.message


def test_top_logprobs_need_logprobs() -> None:
    assert parsed(top_logprobs=0).num_top == 0
    assert parsed(logprobs=True, top_logprobs=5).num_top == 5
    with pytest.raises(ApiError, match="logprobs is not true"):
        parsed(top_logprobs=5)


def test_penalties_and_biases_are_passed_on_and_recorded_as_untrained() -> None:
    asked: dict[str, Any] = {"frequency_penalty": 0.5, "repetition_penalty": 1.2, "logit_bias": {"5": -100}}
    assert parsed(**asked, presence_penalty=0).reshaping == asked
    assert parsed(frequency_penalty=0, repetition_penalty=1, logit_bias={}).reshaping == {}
    progress = AnswerProgress(prompt_ids=b"", max_tokens=9, asked=AskedSampling(reshaping=asked))
    assert progress.untrained_because == ["frequency_penalty", "repetition_penalty", "logit_bias"]


@pytest.mark.parametrize(
    "fields",
    [
        {"frequency_penalty": 2.1},
        {"presence_penalty": -3},
        {"repetition_penalty": 0},
        {"logit_bias": {"five": 1}},
        {"logit_bias": {"5": 101}},
    ],
)
def test_penalties_out_of_range_are_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        parsed(**fields)
    assert (refused.value.status, refused.value.param) == (400, next(iter(fields)))
