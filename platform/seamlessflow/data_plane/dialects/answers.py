"""Puts the parts of one answer together again, which clients hand back as blocks or items.

A client may write the result of each parallel call right behind the call. The calls of one answer are then apart, and
are known to belong together by the common beginning of their identifiers (`Choice.call_id`).
"""

from typing import Any

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
