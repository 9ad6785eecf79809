"""What every dialect counts: the prompt, what the tree had of it, the answer, and the reasoning in it."""

import json
from typing import Any

import pytest

from seamlessflow.data_plane.dialects.chat.reply import ChatReply
from seamlessflow.data_plane.dialects.chat.request import ChatOptions
from seamlessflow.data_plane.dialects.completions.reply import CompletionReply
from seamlessflow.data_plane.dialects.completions.request import CompletionOptions
from seamlessflow.data_plane.dialects.messages.reply import MessagesReply
from seamlessflow.data_plane.dialects.messages.request import MessageOptions, messages_request_parse
from seamlessflow.data_plane.dialects.responses.reply import ResponsesReply
from tests.fixtures.answered_turns import (
    CREATED_S,
    NUM_CACHED_TOKENS,
    NUM_PROMPT_TOKENS,
    answer_stream,
    answered,
    tiny_model_text,
    turn_make,
)
from tests.fixtures.response_options import OPTIONS

THOUGHT = "<think>I add 12 and 34.</think>"
TEXT: dict[str, Any] = {"type": "text", "text": "?"}
CACHED = {"type": "ephemeral"}
ANSWER = THOUGHT + "46<|im_end|>"


def num_tokens(text: str) -> int:
    return len(tiny_model_text().ids(text))


def chat_usage(num_reasoning: int, num_sampled: int) -> dict[str, Any]:
    return {
        "prompt_tokens": NUM_PROMPT_TOKENS,
        "completion_tokens": num_sampled,
        "total_tokens": NUM_PROMPT_TOKENS + num_sampled,
        "prompt_tokens_details": {"cached_tokens": NUM_CACHED_TOKENS},
        "completion_tokens_details": {"reasoning_tokens": num_reasoning},
    }


def last_usage(stream: bytes, holder: str = "") -> Any:
    """Return the last usage in the events of a stream, which may be inside an object."""
    bodies = [json.loads(line[6:]) for line in stream.decode().splitlines() if line.startswith("data: {")]
    inside = [body.get(holder) or {} if holder else body for body in bodies]
    return [body["usage"] for body in inside if body.get("usage")][-1]


def test_chat_counts_cached_and_reasoning_tokens() -> None:
    turn = turn_make()
    reply = ChatReply(turn, ChatOptions(has_usage=True, has_logprobs=False), created_s=CREATED_S)
    streamed = last_usage(answer_stream(turn, reply, ANSWER))
    assert (
        streamed == json.loads(reply.whole())["usage"] == chat_usage(num_tokens(THOUGHT), num_tokens(ANSWER))
    )


def test_completions_have_no_reasoning() -> None:
    turn = turn_make(is_plain=True)
    reply = CompletionReply(turn, CompletionOptions(has_usage=True, has_logprobs=False), created_s=CREATED_S)
    streamed = last_usage(answer_stream(turn, reply, ANSWER))
    assert streamed == json.loads(reply.whole())["usage"] == chat_usage(0, num_tokens(ANSWER))


def test_responses_count_cached_and_reasoning_tokens() -> None:
    turn = turn_make()
    reply = ResponsesReply(turn, OPTIONS, created_s=CREATED_S)
    streamed = last_usage(answer_stream(turn, reply, ANSWER), "response")
    assert streamed == json.loads(ResponsesReply(turn, OPTIONS, created_s=CREATED_S).whole())["usage"]
    assert streamed["input_tokens_details"]["cached_tokens"] == NUM_CACHED_TOKENS
    assert streamed["output_tokens_details"]["reasoning_tokens"] == num_tokens(THOUGHT)
    assert streamed["input_tokens"] == NUM_PROMPT_TOKENS


@pytest.mark.parametrize(
    "places,num_cached",
    [
        ({}, 0),
        ({"cache_control": CACHED}, NUM_CACHED_TOKENS),
        ({"system": [{"type": "text", "text": "s", "cache_control": CACHED}]}, NUM_CACHED_TOKENS),
        ({"tools": [{"name": "t", "input_schema": {}, "cache_control": CACHED}]}, NUM_CACHED_TOKENS),
        ({"tools": [{"name": "t", "input_schema": {"cache_control": {"type": "string"}}}]}, 0),
        ({"messages": [{"role": "user", "content": [TEXT | {"cache_control": CACHED}]}]}, NUM_CACHED_TOKENS),
        ({"messages": [{"role": "user", "content": [TEXT | {"cache_control": None}]}]}, 0),
    ],
)
def test_messages_count_cached_tokens_apart_only_if_caching_is_asked_for(
    places: dict[str, Any], num_cached: int
) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [TEXT]}]}
    options = messages_request_parse(json.dumps(body | places).encode(), temperature=1.0).options
    usage = json.loads(MessagesReply(turn_make(), options).whole())["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (
        NUM_PROMPT_TOKENS - num_cached,
        num_cached,
    )


def test_messages_count_the_same_in_a_stream() -> None:
    turn = turn_make()
    options = MessageOptions(has_thinking=True, is_thinking_omitted=False, asks_for_caching=True)
    streamed = last_usage(answer_stream(turn, MessagesReply(turn, options), ANSWER))
    assert streamed == json.loads(MessagesReply(turn, options).whole())["usage"]
    assert streamed == {
        "input_tokens": NUM_PROMPT_TOKENS - NUM_CACHED_TOKENS,
        "output_tokens": num_tokens(ANSWER),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": NUM_CACHED_TOKENS,
        "output_tokens_details": {"thinking_tokens": num_tokens(THOUGHT)},
    }


@pytest.mark.parametrize(
    "answer,reasoning",
    [
        ("46", ""),
        (THOUGHT, THOUGHT),
        ("<think>I add", "I add"),  # cut short: counted by its text
        ("<think></think>46", ""),
    ],
)
def test_reasoning_is_counted_up_to_its_mark(answer: str, reasoning: str) -> None:
    assert answered(turn_make(), answer).num_reasoning_tokens == num_tokens(reasoning)
