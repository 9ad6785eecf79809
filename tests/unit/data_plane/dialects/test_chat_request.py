"""Fields of a chat completion: which are recorded, which are ignored by name, and which values are refused."""

import json
from typing import Any

import pytest

from seamlessflow.core.trajectory.answer_progress import AnswerProgress
from seamlessflow.core.trajectory.asked_sampling import AskedSampling
from seamlessflow.data_plane.dialects.chat.request import ChatRequest, chat_request_parse
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.routes.turns import MAX_IGNORED_NAMED, ignored_header
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation


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


@pytest.mark.parametrize(
    "raw, words",
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'\xef\xbb\xbf{"messages": []}', "begins with a byte order mark"),
        (b'{"messages": [{"role": "user", "content": "h\xe9"}]}', "is not UTF-8: byte 44 is 0xe9"),
        (b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}', "is not UTF-8: byte 43 is 0xed"),
        ('{"messages": []}'.encode("utf-16"), "is not UTF-8: byte 0 is 0xff"),
        (b'{"messages": [], "metadata": {"\\ud800": 1}}', "a name in metadata contains half of a surrogate"),
        (b'{"\\ud800": 1}', "a field's name contains half of a surrogate"),
    ],
)
def test_a_body_that_is_no_text_is_named_as_such(raw: bytes, words: str) -> None:
    with pytest.raises(ApiError, match=words):
        chat_request_parse(raw, temperature=1.0)


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "thinking"])
def test_a_part_that_is_no_text_is_refused_by_its_type(kind: str) -> None:
    part = {"type": kind, kind: {}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, part]}]
    with pytest.raises(ApiError, match=f"got one of type '{kind}'"):
        parsed(messages=messages)


@pytest.mark.parametrize(
    "tool", [{"type": "custom", "custom": {"name": "f"}}, {"type": "web_search"}, {"type": "function"}]
)
def test_a_tool_that_is_no_function_is_refused_by_its_type(tool: dict[str, Any]) -> None:
    try:
        refusal = str(parsed(tools=[tool]))
    except ApiError as error:
        refusal = str(error)
    assert refusal == f"tools[0] must be a function with a name, got the type {tool['type']!r}."


@pytest.mark.parametrize("name", ["reasoning", "thinking", "reasoning_content"])
def test_reasoning_that_a_client_hands_back_has_one_name(name: str) -> None:
    question = {"role": "user", "content": "?"}
    messages = [question, {"role": "assistant", "content": "2", name: "Easy."}, question]
    conversation = parsed(messages=messages).conversation
    assert isinstance(conversation, Conversation)
    (_, answer, _) = conversation.messages
    assert answer == {"role": "assistant", "content": "2", "reasoning_content": "Easy."}
