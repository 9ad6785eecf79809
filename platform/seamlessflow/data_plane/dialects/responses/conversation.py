"""Turns the items of a response's input into chat messages.

Consecutive reasoning, assistant messages and calls are one turn of the policy, so an answer joins its tree however a
client splits it into items. Instructions, system and developer messages at the beginning are one system message,
because many templates take only one. An item or a whole earlier response may be named by its identifier; what it stands
for comes from the recorded turns of the session.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from seamlessflow.data_plane.dialects.answers import ChatMessages, answer_last, answer_with_call
from seamlessflow.data_plane.dialects.reasoning_seal import BrokenSeal, reasoning_unseal
from seamlessflow.data_plane.dialects.responses.stored import (
    item_unknown,
    previous_unknown,
    reference_read,
    stored_answer,
)
from seamlessflow.data_plane.dialects.responses.tools import custom_arguments, function_name
from seamlessflow.data_plane.errors import ApiError, bad_request
from seamlessflow.data_plane.turns.trajectory_manager.recorded_turns import RecordedTurns

PARAGRAPH = "\n"
SYSTEM_PARAGRAPH = "\n\n"
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_SYSTEM_ROLES = ("system", "developer")


def chat_messages(items: Sequence[Mapping[str, Any]], instructions: str | None) -> ChatMessages:
    """Return the chat messages of a conversation that names nothing. Raises ApiError (400), which names the item."""
    chat = _begun(instructions)
    for number, item in enumerate(items):
        _add(chat, item, f"input[{number}]")
    return chat


def is_reference(item: Mapping[str, Any]) -> bool:
    """Return whether an item only names another. Vercel's and OpenAI's clients may leave the type out."""
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "id" in item and "role" not in item)


@dataclass(slots=True)
class NamedConversation:
    """Puts together the messages of a request that names earlier answers.

    answers: the node of each named answer, beside its message. added: what named items have given to an answer, as
    pairs of a turn and a part. A stream may have cut a text into several items, each of which stands for all of it.
    """

    recorded: RecordedTurns
    chat: ChatMessages
    answers: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    added: set[tuple[UUID, str]] = field(default_factory=set)

    @classmethod
    def begun(cls, recorded: RecordedTurns, instructions: str, previous: str | None) -> "NamedConversation":
        """Begin after the response `previous`, whose own instructions are left behind. Raises ApiError (404)."""
        conversation = cls(recorded, _begun(instructions))
        if previous is not None:
            conversation._continue(previous)
        return conversation

    def add(self, item: Mapping[str, Any], name: str) -> None:
        """Add an item, or the ones that it names. Raises ApiError (400, 404)."""
        if is_reference(item):
            self._add_named(item.get("id"), name)
        else:
            _add(self.chat, item, name)

    def named(self) -> tuple[tuple[int, int], ...]:
        """Return how many messages each named answer ends, and its node."""
        positions = {id(message): position for position, message in enumerate(self.chat)}
        return tuple((positions[id(answer)] + 1, index) for answer, index in self.answers)

    def _continue(self, previous: str) -> None:
        found = stored_answer(self.recorded, reference_read(previous))
        if found is None or not previous.startswith("resp_"):
            raise previous_unknown(previous)
        node, stored = found
        messages = [dict(message) for message in self.recorded.messages_up_to(node)]
        if stored.num_instructions:
            messages = _without_instructions(messages, stored.num_instructions)
        if self.chat and messages[0].get("role") in _SYSTEM_ROLES:
            _add_message(self.chat, messages.pop(0), "previous_response_id")
        self.chat += messages
        self.answers.append((self.chat[-1], node.index))
        self.chat[-1]["content"] = self.chat[-1].get("content") or ""

    def _add_named(self, identifier: object, name: str) -> None:
        reference = reference_read(identifier)
        found = stored_answer(self.recorded, reference)
        if reference is None or found is None or reference.kind == "resp":
            raise item_unknown(identifier, name)
        node, (recorded,) = found[0], found[0].messages
        calls = recorded.get("tool_calls") or []
        is_call = reference.kind not in ("rs", "msg")
        if is_call and reference.number >= len(calls):
            raise item_unknown(identifier, name)
        part = f"call {reference.number}" if is_call else reference.kind
        if (reference.turn_id, part) in self.added:
            return
        self.added.add((reference.turn_id, part))
        if is_call:
            answer = answer_with_call(self.chat, calls[reference.number]["id"])
            answer.setdefault("tool_calls", []).append(calls[reference.number])
        else:
            answer, key = (
                answer_last(self.chat),
                "content" if reference.kind == "msg" else "reasoning_content",
            )
            answer[key] = answer.get(key, "") + (recorded.get(key) or "")
        self.answers.append((answer, node.index))


def _begun(instructions: str | None) -> ChatMessages:
    return [{"role": "system", "content": instructions}] if instructions else []


def _without_instructions(messages: ChatMessages, num_chars: int) -> ChatMessages:
    """Leave out the instructions with which the system message begins; it may have had other text behind them."""
    rest = messages[0]["content"][num_chars:].removeprefix(SYSTEM_PARAGRAPH)
    return [*([{**messages[0], "content": rest}] if rest else []), *messages[1:]]


def _add(chat: ChatMessages, item: Mapping[str, Any], field: str) -> None:
    match item.get("type", "message"):
        case "message":
            _add_message(chat, item, field)
        case "reasoning":
            answer = answer_last(chat)
            answer["reasoning_content"] = answer.get("reasoning_content", "") + _reasoning(item, field)
        case "function_call":
            _add_call(chat, item, _string(item, "arguments", field), field)
        case "custom_tool_call":
            text = _string(item, "input", field)
            _add_call(chat, item, custom_arguments(text, str(item.get("id") or "")), field)
        case "function_call_output" | "custom_tool_call_output":
            content = _text(item.get("output"), f"{field}.output")
            chat.append({"role": "tool", "tool_call_id": _string(item, "call_id", field), "content": content})
        case kind:
            raise _unsupported(field, f"{field} is an item of type {kind!r}, which is not supported.")


def _add_message(chat: ChatMessages, item: Mapping[str, Any], field: str) -> None:
    role = item.get("role")
    separator = "" if role == "assistant" else PARAGRAPH
    text = _text(item.get("content"), f"{field}.content", separator=separator)
    if role == "assistant":
        answer_last(chat)["content"] += text
    elif role in _SYSTEM_ROLES:
        if len(chat) == 1 and chat[0]["role"] == "system":
            chat[0] = {"role": "system", "content": chat[0]["content"] + SYSTEM_PARAGRAPH + text}
        else:
            chat.append({"role": "system", "content": text})
    elif role == "user":
        chat.append({"role": "user", "content": text})
    else:
        raise bad_request(
            f"{field}.role must be user, assistant, system or developer, got {role!r}.", param=field
        )


def _add_call(chat: ChatMessages, item: Mapping[str, Any], arguments: str, field: str) -> None:
    name = function_name(_string(item, "name", field), item.get("namespace"))
    function = {"name": name, "arguments": arguments}
    call: dict[str, Any] = {"id": _string(item, "call_id", field), "type": "function", "function": function}
    answer_with_call(chat, call["id"]).setdefault("tool_calls", []).append(call)


def _reasoning(item: Mapping[str, Any], field: str) -> str:
    """Return the reasoning of an item: from its seal if this gateway issued it, else as far as it is readable."""
    sealed = item.get("encrypted_content")
    if isinstance(sealed, str):
        try:
            text = reasoning_unseal(sealed)
        except BrokenSeal as error:
            raise bad_request(
                f"{field}.encrypted_content was changed: {error}.", param=f"{field}.encrypted_content"
            ) from error
        if text is not None:
            return text
    return _text(item.get("content"), f"{field}.content", separator="")


def _text(content: Any, field: str, *, separator: str = PARAGRAPH) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise bad_request(f"{field} must be a string or a list of parts.", param=field)
    return separator.join(_part(part, f"{field}[{number}]") for number, part in enumerate(content))


def _part(part: Any, field: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get("refusal" if kind == "refusal" else "text") if isinstance(part, dict) else None
    if kind not in (*_TEXTS, "refusal"):
        raise _unsupported(field, f"{field} is a part of type {kind!r}, which is not supported here.")
    if not isinstance(text, str):
        raise bad_request(f"{field}.text must be a string.", param=field)
    return text


def _string(item: Mapping[str, Any], name: str, field: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise bad_request(f"{field}.{name} must be a string.", param=field)
    return value


def _unsupported(field: str, message: str) -> ApiError:
    return bad_request(message, param=field, code="unsupported_parameter")
