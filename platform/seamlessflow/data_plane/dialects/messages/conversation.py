"""Turns Anthropic's messages and blocks into chat messages.

Consecutive assistant messages are one turn, and its text blocks are joined without a separator, so an answer joins its
tree however a client splits it. Text blocks of users and of the system prompt are paragraphs of their own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seamlessflow.data_plane.dialects.answers import ChatMessages, answer_last, answer_with_call
from seamlessflow.data_plane.dialects.reasoning_seal import BrokenSeal, reasoning_unseal
from seamlessflow.data_plane.errors import ApiError, bad_request

PARAGRAPH = "\n"
ERROR_PREFIX = (
    "Error: "  # of a failed tool's result: chat messages have no field for it that templates render
)
RAW_ARGUMENTS = "_arguments"  # the only key of a tool's input if the arguments are not an object
_encode = msgspec.json.encode

Blocks = list[dict[str, Any]]


def chat_messages(messages: Sequence[Mapping[str, Any]]) -> ChatMessages:
    """Return the chat messages of a conversation. Raises ApiError (400), which names the block."""
    chat: ChatMessages = []
    for position, message in enumerate(messages):
        field, role = f"messages[{position}]", message.get("role")
        blocks = blocks_of(message.get("content"), f"{field}.content")
        if role == "assistant":
            _add_assistant(chat, blocks, field)
        elif role == "user":
            chat += _user_messages(blocks, field)
        elif role == "system":
            chat.append({"role": "system", "content": paragraphs(blocks, f"{field}.content")})
        else:
            raise bad_request(f"{field}.role must be user or assistant, got {role!r}.", param=field)
    return chat


def blocks_of(content: Any, field: str) -> Blocks:
    """Return a content field as blocks. Raises ApiError (400)."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if content is None:
        return []
    if isinstance(content, list) and all(isinstance(block, dict) for block in content):
        return content
    raise bad_request(f"{field} must be a string or a list of blocks.", param=field)


def paragraphs(blocks: Blocks, field: str) -> str:
    """Join text blocks. Raises ApiError (400) if there is another block."""
    return PARAGRAPH.join(_text(block, f"{field}[{number}]") for number, block in enumerate(blocks))


def _user_messages(blocks: Blocks, field: str) -> ChatMessages:
    """Return a message for each tool result, and one for each run of text between them."""
    chat: ChatMessages = []
    texts: list[str] = []
    for number, block in enumerate(blocks):
        name = f"{field}.content[{number}]"
        if block.get("type") != "tool_result":
            texts.append(_text(block, name))
            continue
        _flush_user(chat, texts)
        content = paragraphs(blocks_of(block.get("content"), f"{name}.content"), f"{name}.content")
        if block.get("is_error") is True:
            content = ERROR_PREFIX + content
        chat.append({"role": "tool", "tool_call_id": str(block.get("tool_use_id", "")), "content": content})
    if texts or not blocks:
        chat.append({"role": "user", "content": PARAGRAPH.join(texts)})
    return chat


def _flush_user(chat: ChatMessages, texts: list[str]) -> None:
    if texts:
        chat.append({"role": "user", "content": PARAGRAPH.join(texts)})
        texts.clear()


def _add_assistant(chat: ChatMessages, blocks: Blocks, field: str) -> None:
    if not blocks:
        answer_last(chat)
    for number, block in enumerate(blocks):
        name = f"{field}.content[{number}]"
        match block.get("type"):
            case "thinking":
                answer = answer_last(chat)
                answer["reasoning_content"] = answer.get("reasoning_content", "") + _thinking(block, name)
            case "redacted_thinking":
                answer_last(chat)  # another server wrote the block, which alone can read it
            case "tool_use":
                call = _tool_call(block, name)
                answer_with_call(chat, call["id"]).setdefault("tool_calls", []).append(call)
            case _:
                answer_last(chat)["content"] += _text(block, name)


def _text(block: Mapping[str, Any], field: str) -> str:
    kind, text = block.get("type"), block.get("text")
    if kind != "text":
        raise bad_request(
            f"{field} is a block of type {kind!r}, which is not supported here.",
            param=field,
            code="unsupported_parameter",
        )
    if not isinstance(text, str):
        raise bad_request(f"{field}.text must be a string.", param=field)
    return text


def _thinking(block: Mapping[str, Any], field: str) -> str:
    text, signature = block.get("thinking", ""), block.get("signature") or ""
    if not isinstance(text, str) or not isinstance(signature, str):
        raise bad_request(f"{field}.thinking and its signature must be strings.", param=field)
    try:
        sealed = reasoning_unseal(signature)
    except BrokenSeal as error:
        raise _invalid_signature(field) from error
    if sealed is not None and text and text != sealed:
        raise _invalid_signature(field)
    return text if sealed is None else sealed


def _invalid_signature(field: str) -> ApiError:
    return bad_request(f"{field}: Invalid `signature` in `thinking` block.", param=field)


def _tool_call(block: Mapping[str, Any], field: str) -> dict[str, Any]:
    name, asked = block.get("name"), block.get("input", {})
    if not isinstance(name, str) or not isinstance(asked, dict):
        raise bad_request(f"{field} must have a name and an object as its input.", param=field)
    function = {"name": name, "arguments": arguments_of(asked)}
    return {"id": str(block.get("id", "")), "type": "function", "function": function}


def arguments_of(asked: Mapping[str, Any]) -> str:
    """Return the arguments, as the policy wrote them, of a tool's input; the inverse of `input_of`."""
    raw = asked.get(RAW_ARGUMENTS)
    return raw if len(asked) == 1 and isinstance(raw, str) else _encode(asked).decode()


def input_of(arguments: str) -> dict[str, Any]:
    """Return a tool's input, which must be an object, for the arguments that the policy wrote."""
    try:
        asked = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        asked = None
    is_plain = isinstance(asked, dict) and not (len(asked) == 1 and RAW_ARGUMENTS in asked)
    return asked if is_plain else {RAW_ARGUMENTS: arguments}
