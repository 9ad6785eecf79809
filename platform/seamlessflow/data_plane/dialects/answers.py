"""Joins one answer again, which clients return as blocks or items.

A client may write the result of each parallel call right behind the call. The calls of one answer are then apart, and
are known to belong together by the common beginning of their identifiers (`Choice.call_id`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from seamlessflow.core.trajectory.messages import message_text
from seamlessflow.data_plane.turns.rendering.parsers.call_ids import call_stem

ChatMessages = list[dict[str, Any]]


def answer_last(chat: ChatMessages) -> dict[str, Any]:
    """Return the answer that ends the conversation so far; a new one if the last message is no answer."""
    if not chat or chat[-1]["role"] != "assistant":
        chat.append({"role": "assistant", "content": ""})
    return chat[-1]


def answer_with_call(chat: ChatMessages, call_id: str) -> dict[str, Any]:
    """Return the answer that a call belongs to: one above the last results, or as `answer_last`."""
    stem = call_stem(call_id)
    for message in reversed(chat):
        if message["role"] != "tool":
            calls = message.get("tool_calls") or () if stem else ()
            if any(call_stem(call["id"]) == stem for call in calls):
                return message
            break
    return answer_last(chat)


def answers_joined(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return chat messages with the calls of each answer in one message, above all of their results.

    A message is taken for the rest of an earlier answer if it has nothing but calls (or repeats the answer's text) and
    only results stand between them.
    """
    if not any("tool_calls" in message for message in messages):
        return list(messages)
    chat: list[Mapping[str, Any]] = []
    for message in messages:
        index = _answer_index(chat, message)
        if index is None:
            chat.append(message)
        else:
            calls = [*chat[index]["tool_calls"], *message["tool_calls"]]
            chat[index] = {**chat[index], "tool_calls": calls}
    return chat


def _answer_index(chat: Sequence[Mapping[str, Any]], message: Mapping[str, Any]) -> int | None:
    """Return where the answer is that the calls of a message belong to; None if the message is an answer itself."""
    stems = _stems(message)
    if len(stems) != 1:
        return None
    index = next((p for p in reversed(range(len(chat))) if chat[p].get("role") != "tool"), None)
    if index is None or not stems <= _stems(chat[index]):
        return None
    text, answer = message_text(message.get("content")), message_text(chat[index].get("content"))
    return index if text.strip() in ("", answer.strip()) else None


def _stems(message: Mapping[str, Any]) -> set[str]:
    """Return the stems of an answer's calls: none if a call has another server's identifier, or a user speaks."""
    calls = message.get("tool_calls") or () if message.get("role") == "assistant" else ()
    stems = [call_stem(str(call.get("id", ""))) for call in calls]
    return set() if None in stems else {stem for stem in stems if stem is not None}
