"""Parallel calls of one answer, which chat clients hand back with their results in between."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.trajectory.messages import message_digests
from seamlessflow.data_plane.dialects.answers import answers_joined
from seamlessflow.data_plane.dialects.chat.request import chat_request_parse
from seamlessflow.data_plane.turns.rendering.parsers.call_ids import LONG_IDS
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation

STEMS = ["call_" + digit * 20 for digit in "ab"]
USER = {"role": "user", "content": "?"}


def call(number: int, stem: str = STEMS[0]) -> dict[str, Any]:
    function = {"name": "f", "arguments": json.dumps({"n": number})}
    return {"id": LONG_IDS.call_id(stem, number), "type": "function", "function": function}


def answer(*calls: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def result(number: int) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": LONG_IDS.call_id(STEMS[0], number), "content": str(number)}


@given(st.lists(st.booleans(), min_size=1, max_size=5), st.booleans())
def test_calls_join_however_a_client_spreads_them(is_apart: list[bool], is_repeating: bool) -> None:
    """After each call the client may write its result and begin a message anew, with or without the answer's text."""
    numbers = range(len(is_apart))
    whole = [USER, answer(*map(call, numbers), text="Now."), *map(result, numbers), USER]
    spread: list[Any] = [USER, answer(text="Now.")]
    pending: list[Any] = []
    for number, is_split in enumerate(is_apart):
        spread[-1]["tool_calls"].append(call(number))
        pending.append(result(number))
        if is_split and number < len(is_apart) - 1:
            spread += [*pending, answer(text="Now." if is_repeating else None)]
            pending = []
    spread += [*pending, USER]

    parsed = chat_request_parse(json.dumps({"messages": spread}).encode(), temperature=1.0)

    assert isinstance(parsed.conversation, Conversation)
    assert message_digests(parsed.conversation.messages) == message_digests(whole)


def test_what_is_no_part_of_the_answer_above_stays_apart() -> None:
    first = [USER, answer(call(0)), result(0)]
    others = [
        answer(call(1, STEMS[1])),  # the next answer
        answer(call(1), text="But:"),  # says something else
        answer({**call(1), "id": "toolu_1"}),  # another server's call
        answer(call(1), {**call(2), "id": "toolu_1"}),
        {"role": "assistant", "content": "Done."},
        USER,
    ]
    for other in others:
        assert answers_joined([*first, other]) == [*first, other]
    assert answers_joined([*first, USER, answer(call(1))]) == [*first, USER, answer(call(1))]
