"""Answers of OpenAI's Responses: the order of a stream's events, and answers that join their tree again."""

import dataclasses
import json
from typing import Any

import openai.types.responses as sdk
import pydantic
from hypothesis import example, given
from hypothesis import strategies as st

from seamlessflow.core.trajectory.answer_progress import FinishReason
from seamlessflow.core.trajectory.messages import message_digest
from seamlessflow.data_plane.dialects.responses.conversation import chat_messages
from seamlessflow.data_plane.dialects.responses.reply import ResponsesReply
from seamlessflow.data_plane.errors import bad_request
from tests.fixtures.answered_turns import CREATED_S, answer_stream, answered, turn_make
from tests.fixtures.random_answers import ANSWERS, CUTS
from tests.fixtures.response_options import OPTIONS

CALL = '<tool_call>{"name": "calc", "arguments": {"a": 1}}</tool_call>'
RUN = '<tool_call>{"name": "shell__run", "arguments": {"a": 1}}</tool_call>'
PATCH = '<tool_call>{"name": "patch", "arguments": {"input": "+a"}}</tool_call>'
EVENT: pydantic.TypeAdapter[sdk.ResponseStreamEvent] = pydantic.TypeAdapter(sdk.ResponseStreamEvent)


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """Return the events, each checked against the type that OpenAI's client has for it."""
    events = []
    for raw in stream.decode().removesuffix("\n\n").split("\n\n"):
        name, data = raw.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
        EVENT.validate_python(events[-1])
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def events_said(answer: str, reply: ResponsesReply, turn: Any, cuts: list[int]) -> list[dict[str, Any]]:
    return events_of(answer_stream(turn, reply, answer + "<|im_end|>", cuts=cuts))


def reply_to(turn: Any) -> ResponsesReply:
    return ResponsesReply(turn, OPTIONS, created_s=CREATED_S)


def pieces(items: list[dict[str, Any]], cut: int) -> list[dict[str, Any]]:
    """Split messages in two, as clients may."""
    split: list[dict[str, Any]] = []
    for item in items:
        text = item["content"][0]["text"] if item["type"] == "message" else ""
        parts = [text[:cut], text[cut:]] if cut < len(text) else []
        split += [{"role": "assistant", "content": part} for part in parts] or [item]
    return split


def with_results(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the result of each call right behind it."""
    handed: list[dict[str, Any]] = []
    for item in items:
        handed.append(item)
        if "call_id" in item:
            handed.append({"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "46"})
    return handed


def test_a_stream_has_the_events_of_the_real_api() -> None:
    turn = turn_make()
    events = events_said(f"<think>hm</think>See.{CALL}{PATCH}", reply_to(turn), turn, [])

    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    assert events[0]["response"]["status"] == "in_progress"
    response = events[-1]["response"]
    assert [item["type"] for item in response["output"]] == [
        "reasoning", "message", "function_call", "custom_tool_call",
    ]  # fmt: skip
    assert (response["output"][2]["arguments"], response["output"][3]["input"]) == ('{"a":1}', "+a")
    assert response["usage"]["output_tokens"] == turn.choices[0].progress.num_tokens


def test_a_call_of_a_tool_in_a_namespace_names_both() -> None:
    turn = turn_make()
    response = events_said(RUN, reply_to(turn), turn, [])[-1]["response"]

    assert (response["output"][-1]["namespace"], response["output"][-1]["name"]) == ("shell", "run")


def test_an_answer_that_was_cut_short_is_incomplete() -> None:
    turn = turn_make()
    turn.choices[0].progress.finish_reason = FinishReason.LENGTH
    last = events_said("See", reply_to(turn), turn, [])[-1]

    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_a_failure_is_an_event_that_clients_raise() -> None:
    name, data = (
        reply_to(turn_make()).failure(bad_request("No.", code="job_over")).decode().strip().split("\n")
    )
    event = json.loads(data.removeprefix("data: "))

    assert (name, event["type"], event["message"], event["code"]) == (
        "event: error",
        "error",
        "No.",
        "job_over",
    )
    assert event["error"]["message"] == "No."


@given(ANSWERS, CUTS, st.integers(0, 8))
def test_an_answer_that_returns_is_the_recorded_message(answer: str, cuts: list[int], cut: int) -> None:
    turn = turn_make()
    events = events_said(answer, reply_to(turn), turn, cuts)
    whole = json.loads(reply_to(turn).whole())
    recorded = message_digest(turn.choices[0].message())
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]

    sdk.Response.model_validate(whole)
    assert done == events[-1]["response"]["output"]
    for items in (done, whole["output"]):
        for handed in (items, pieces(items, cut)):
            (message,) = chat_messages(handed, None)
            assert message_digest(message) == recorded


@given(ANSWERS, CUTS)
@example(f"<think>44</think>444444😀44444444😀{CALL}44444😀\\", [26, 54])
def test_the_logprobs_are_those_of_the_text_however_it_comes(answer: str, cuts: list[int]) -> None:
    options = dataclasses.replace(OPTIONS, has_logprobs=True, num_top=2)
    turn = turn_make(num_top=2)
    events = events_said(answer, ResponsesReply(turn, options, created_s=CREATED_S), turn, cuts)
    whole = json.loads(ResponsesReply(turn, options, created_s=CREATED_S).whole())

    sdk.Response.model_validate(whole)
    texts = [item["content"][0] for item in whole["output"] if item["type"] == "message"]
    logprobs = [entry for text in texts for entry in text["logprobs"]]
    streamed = [
        entry
        for item in events[-1]["response"]["output"]
        if item["type"] == "message"
        for entry in item["content"][0]["logprobs"]
    ]
    assert streamed == logprobs
    grown = [
        entry
        for event in events
        if event["type"] == "response.output_text.delta"
        for entry in event["logprobs"]
    ]
    assert grown == logprobs[: len(grown)]
    said = bytes(byte for entry in logprobs for byte in entry["bytes"]).decode(errors="replace")
    if said.isascii():
        assert "".join(said.split()) == "".join("".join(text["text"] for text in texts).split())
    assert all(len(entry["top_logprobs"]) == 2 for entry in logprobs)


def test_logprobs_are_left_out_unless_they_are_asked_for() -> None:
    turn = turn_make()
    events = events_said("46", reply_to(turn), turn, [])
    assert [event["logprobs"] for event in events if "logprobs" in event] == [[], []]


@given(ANSWERS)
def test_parallel_calls_are_one_answer_though_results_stand_between_them(answer: str) -> None:
    turn = turn_make()
    answered(turn, answer)
    items = json.loads(reply_to(turn).whole())["output"]
    first, *rest = chat_messages(with_results(items), None)

    assert message_digest(first) == message_digest(turn.choices[0].message())
    assert {message["role"] for message in rest} <= {"tool"}
