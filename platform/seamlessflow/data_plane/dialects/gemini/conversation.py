"""Turns Google's contents and parts into chat messages.

Consecutive contents of the model are one turn, and its texts are joined without a separator, so an answer joins its
tree however a client splits it. A result whose call has no identifier belongs to the first open call of its name. A
result that is sent twice is one: gemini-cli repeats those of a session that it resumes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seamlessflow.data_plane.dialects.answers import ChatMessages, answer_last, answer_with_call
from seamlessflow.data_plane.dialects.gemini.names import camel
from seamlessflow.data_plane.dialects.messages.conversation import PARAGRAPH, arguments_of
from seamlessflow.data_plane.errors import ApiError, bad_request

_NUM_ID_DIGITS = 9  # some templates accept no other identifiers than nine letters or digits
_WORDS = ("output", "result")  # the only member of a result that is a text
_encode = msgspec.json.encode


def chat_messages(contents: Sequence[Mapping[str, Any]]) -> ChatMessages:
    """Return the chat messages of a conversation. Raises ApiError (400), which names the part."""
    chat: ChatMessages = []
    for number, content in enumerate(contents):
        field, role = f"contents[{number}]", content.get("role", "user")
        parts = parts_of(content, field)
        if role == "model":
            _add_answer(chat, parts, field)
        elif role in ("user", "function", "tool"):
            _add_user(chat, parts, field)
        else:
            raise bad_request(f"{field}.role must be user or model, got {role!r}.", param=field)
    return chat


def parts_of(content: Any, field: str) -> list[dict[str, Any]]:
    """Return the parts of a content, which may be a text alone. Raises ApiError (400)."""
    if isinstance(content, str):
        return [{"text": content}]
    parts = content.get("parts") if isinstance(content, Mapping) else None
    parts = [parts] if isinstance(parts, Mapping) else parts or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise bad_request(f"{field}.parts must be a list of parts.", param=f"{field}.parts")
    return [camel(part) for part in parts]


def text_of(part: Mapping[str, Any], field: str) -> str:
    """Return the text of a part. Raises ApiError (400) if it is another one."""
    text = part.get("text")
    if not isinstance(text, str):
        kinds = ", ".join(sorted(part)) or "nothing"
        raise bad_request(
            f"{field} has {kinds}; only text, functionCall and functionResponse are supported.",
            param=field,
            code="unsupported_parameter",
        )
    return text


def _add_answer(chat: ChatMessages, parts: Sequence[Mapping[str, Any]], field: str) -> None:
    if not parts:
        answer_last(chat)
    for number, part in enumerate(parts):
        name = f"{field}.parts[{number}]"
        if "functionCall" in part:
            _add_call(chat, part["functionCall"], f"{name}.functionCall")
            continue
        key = "reasoning_content" if part.get("thought") is True else "content"
        answer = answer_last(chat)
        is_bare = set(part) <= {"thought", "thoughtSignature"}  # a signature, whose text the client left out
        answer[key] = answer.get(key, "") + ("" if is_bare and part else text_of(part, name))


def _add_call(chat: ChatMessages, asked: Any, field: str) -> None:
    name, arguments = _member(asked, "name", field), asked.get("args") or {}
    if not isinstance(arguments, dict):
        raise bad_request(f"{field}.args must be an object.", param=field)
    call_id = asked.get("id") or f"{sum(map(_num_calls, chat)):0{_NUM_ID_DIGITS}d}"
    function = {"name": name, "arguments": arguments_of(arguments)}
    call = {"id": str(call_id), "type": "function", "function": function}
    answer_with_call(chat, str(call_id)).setdefault("tool_calls", []).append(call)


def _add_user(chat: ChatMessages, parts: Sequence[Mapping[str, Any]], field: str) -> None:
    """Add a message for each result, and one for each run of text between them."""
    texts: list[str] = []
    for number, part in enumerate(parts):
        name = f"{field}.parts[{number}]"
        if "functionResponse" not in part:
            texts.append(text_of(part, name))
            continue
        _flush(chat, texts)
        result = _result(chat, part["functionResponse"], f"{name}.functionResponse")
        if result not in chat or not result["tool_call_id"]:
            chat.append(result)
    if texts or not parts:
        chat.append({"role": "user", "content": PARAGRAPH.join(texts)})


def _flush(chat: ChatMessages, texts: list[str]) -> None:
    if texts:
        chat.append({"role": "user", "content": PARAGRAPH.join(texts)})
        texts.clear()


def _result(chat: ChatMessages, response_of: Any, field: str) -> dict[str, Any]:
    name, response = _member(response_of, "name", field), response_of.get("response") or {}
    if response_of.get("parts"):
        raise _unsupported(f"{field}.parts", f"{field}.parts is not supported; only response is.")
    call_id = response_of.get("id") or _open_call(chat, name)
    return {"role": "tool", "tool_call_id": str(call_id), "content": _words(response)}


def _words(response: Any) -> str:
    """Return a result as text: the only word of an object that just wraps it, or JSON."""
    if isinstance(response, dict) and len(response) == 1:
        key, value = next(iter(response.items()))
        if key in _WORDS and isinstance(value, str):
            return value
    return _encode(response).decode()


def _open_call(chat: ChatMessages, name: str) -> str:
    """Return the identifier of the first call of this name that has no result yet; empty if there is none."""
    answered = {message["tool_call_id"] for message in chat if message["role"] == "tool"}
    calls = [call for message in chat for call in message.get("tool_calls") or ()]
    found = (call["id"] for call in calls if call["function"]["name"] == name and call["id"] not in answered)
    return next(found, "")


def _num_calls(message: Mapping[str, Any]) -> int:
    return len(message.get("tool_calls") or ())


def _member(value: Any, name: str, field: str) -> str:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, str) or not found:
        raise bad_request(f"{field}.{name} must be a string.", param=field)
    return found


def _unsupported(field: str, message: str) -> ApiError:
    return bad_request(message, param=field, code="unsupported_parameter")
