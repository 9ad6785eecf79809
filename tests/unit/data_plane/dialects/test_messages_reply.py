"""Anthropic's answers: the order of a stream's events, and answers that join their tree when they are handed back."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.trajectory.messages import is_same_message, message_digest
from seamlessflow.data_plane.dialects.messages.conversation import chat_messages
from seamlessflow.data_plane.dialects.messages.reply import MessagesReply
from seamlessflow.data_plane.dialects.messages.request import MessageOptions
from seamlessflow.data_plane.errors import bad_request
from tests.fixtures.answered_turns import (
    NUM_PROMPT_TOKENS,
    answer_stream,
    answered,
    turn_make,
)
from tests.fixtures.random_answers import ANSWERS, CUTS, as_javascript

THINKING = MessageOptions(has_thinking=True, is_thinking_omitted=False)
SILENT = MessageOptions(has_thinking=False, is_thinking_omitted=False)
OMITTED = MessageOptions(has_thinking=True, is_thinking_omitted=True)
CALL = '<tool_call>{"name": "calc", "arguments": {"a": 1}}</tool_call>'


def events_of(stream: bytes) -> list[dict[str, Any]]:
    events = []
    for raw in stream.decode().removesuffix("\n\n").split("\n\n"):
        name, data = raw.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def blocks_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put a stream's blocks together as Anthropic's client does."""
    blocks: list[dict[str, Any]] = []
    inputs: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(event["content_block"])
        elif event["type"] == "content_block_delta":
            assert event["index"] == len(blocks) - 1
            _grow(blocks[-1], event["delta"], inputs, event["index"])
    for index, text in inputs.items():
        blocks[index]["input"] = json.loads(text)
    return blocks


def _grow(block: dict[str, Any], delta: dict[str, Any], inputs: dict[int, str], index: int) -> None:
    for field in ("text", "thinking", "signature"):
        if field in delta:
            block[field] += delta[field]
    if "partial_json" in delta:
        inputs[index] = inputs.get(index, "") + delta["partial_json"]


def pieces(blocks: list[dict[str, Any]], cut: int) -> Iterator[dict[str, Any]]:
    """Split text blocks in two, as clients may."""
    for block in blocks:
        text = block.get("text", "")
        parts = [text[:cut], text[cut:]] if cut < len(text) else []
        yield from ({**block, "text": part} for part in parts) if parts else [block]


def with_results(blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a message for each block, with the result of each call right behind it."""
    for block in blocks:
        yield {"role": "assistant", "content": [block]}
        if block["type"] == "tool_use":
            result = {"type": "tool_result", "tool_use_id": block["id"], "content": "46"}
            yield {"role": "user", "content": [result]}


def calls_of(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for block in blocks if block["type"] == "tool_use"]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("content_block_") for event in events]


def test_a_stream_has_the_events_of_the_real_api() -> None:
    turn = turn_make()
    events = events_of(
        answer_stream(turn, MessagesReply(turn, THINKING), f"<think>hm</think>See.{CALL}<|im_end|>")
    )

    assert kinds(events) == [
        "message_start",
        "start", "delta", "delta", "stop",
        "start", "delta", "stop",
        "start", "delta", "stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"] == [
        "thinking_delta", "signature_delta", "text_delta", "input_json_delta",
    ]  # fmt: skip
    assert events[0]["message"]["usage"] == {
        "input_tokens": NUM_PROMPT_TOKENS,
        "output_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens_details": {"thinking_tokens": 0},
    }
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] == turn.choices[0].progress.num_tokens


def test_thinking_is_left_out_unless_it_was_asked_for() -> None:
    turn = turn_make()
    events = events_of(answer_stream(turn, MessagesReply(turn, SILENT), "<think>hm</think><|im_end|>"))

    assert blocks_of(events) == [{"type": "text", "text": ""}]
    assert events[-2]["delta"]["stop_reason"] == "end_turn"


def test_omitted_thinking_is_restored_from_its_signature() -> None:
    turn = turn_make()
    answered(turn, "<think>hm</think>46<|im_end|>")
    (thought, _) = json.loads(MessagesReply(turn, OMITTED).whole())["content"]

    assert thought["thinking"] == ""
    assert chat_messages([{"role": "assistant", "content": [thought]}])[0]["reasoning_content"] == "hm"


def test_a_stop_sequence_is_named() -> None:
    turn = turn_make(stop=["STOP"])
    events = events_of(answer_stream(turn, MessagesReply(turn, SILENT), "one STOP two"))

    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "STOP"}


def test_a_failure_and_a_ping_are_events() -> None:
    reply = MessagesReply(turn_make(), SILENT)

    assert events_of(reply.keepalive()) == [{"type": "ping"}]
    (failed,) = events_of(reply.failure(bad_request("No.", code="job_over")))
    assert failed["error"] == {
        "type": "invalid_request_error",
        "message": "No.",
        "param": None,
        "code": "job_over",
    }


@given(ANSWERS, CUTS, st.integers(0, 8), st.sampled_from([THINKING, SILENT, OMITTED]))
def test_an_answer_that_returns_is_the_recorded_message(
    answer: str, cuts: list[int], cut: int, options: MessageOptions
) -> None:
    turn = turn_make()
    events = events_of(answer_stream(turn, MessagesReply(turn, options), answer + "<|im_end|>", cuts=cuts))
    whole = json.loads(MessagesReply(turn, options).whole())
    recorded = message_digest(turn.choices[0].message())

    for blocks in (blocks_of(events), as_javascript(whole["content"])):
        (message,) = chat_messages([{"role": "assistant", "content": blocks}])
        assert is_same_message(message_digest(message), recorded)
        assert options is SILENT or message_digest(message) == recorded
        apart = [{"role": "assistant", "content": [block]} for block in pieces(blocks, cut)]
        (joined,) = chat_messages(apart)
        assert message_digest(joined) == message_digest(message)
    assert calls_of(blocks_of(events)) == calls_of(whole["content"])


@given(ANSWERS)
def test_parallel_calls_are_one_answer_though_results_stand_between_them(answer: str) -> None:
    turn = turn_make()
    answered(turn, answer)
    blocks = json.loads(MessagesReply(turn, THINKING).whole())["content"]
    first, *rest = chat_messages(list(with_results(blocks)))

    assert message_digest(first) == message_digest(turn.choices[0].message())
    assert [message["role"] for message in rest] == ["tool"] * len(calls_of(blocks))


def test_calls_of_two_answers_stay_apart() -> None:
    turns = [turn_make(), turn_make()]
    for turn in turns:
        answered(turn, CALL)
    blocks = [json.loads(MessagesReply(turn, SILENT).whole())["content"][0] for turn in turns]

    assert [message["role"] for message in chat_messages(list(with_results(blocks)))] == [
        "assistant", "tool", "assistant", "tool",
    ]  # fmt: skip
