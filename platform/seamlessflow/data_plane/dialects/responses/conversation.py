"""Turns the items of a response's input into chat messages.

Consecutive reasoning, assistant messages and calls are one turn of the policy, so an answer joins its tree however a
client splits it into items. Instructions, system and developer messages at the beginning are one system message,
because many templates take only one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from seamlessflow.data_plane.dialects.answers import ChatMessages, answer_last, answer_with_call
from seamlessflow.data_plane.dialects.reasoning_seal import BrokenSeal, reasoning_unseal
from seamlessflow.data_plane.dialects.responses.tools import custom_arguments, function_name
from seamlessflow.data_plane.errors import ApiError, bad_request

PARAGRAPH = "\n"
SYSTEM_PARAGRAPH = "\n\n"
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_SYSTEM_ROLES = ("system", "developer")


def chat_messages(items: Sequence[Mapping[str, Any]], instructions: str | None) -> ChatMessages:
    """Return the chat messages of a conversation. Raises ApiError (400), which names the item."""
    chat: ChatMessages = [{"role": "system", "content": instructions}] if instructions else []
    for number, item in enumerate(items):
        _add(chat, item, f"input[{number}]")
    return chat


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
