"""Finds out in which form a chat template reads messages: by rendering small conversations, once per template.

Enters: how to render. Leaves: `MessageForms`, which gives messages that form. Two things differ between templates.
An answer that has calls and no text is written by some only if its content is null, while others fail on null or write
"None". And reasoning is read under the name `reasoning_content`, `reasoning` or `thinking`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]
Render = Callable[[Sequence[Message]], str | None]  # None: the template refuses the messages

REASONING = "reasoning_content"
_OTHER_NAMES = ("reasoning", "thinking")
_FUNCTION, _THOUGHT = "seek_out_it", "Hm, a thought."


@dataclass(frozen=True, slots=True)
class MessageForms:
    """keeps_null: empty content of an answer with calls is null; otherwise it is "". reasoning_names: further names
    under which the template reads reasoning."""

    keeps_null: bool = False
    reasoning_names: tuple[str, ...] = ()

    def shown(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages in the form that the template reads."""
        return [self._shown(message) if _has_forms(message) else message for message in messages]

    def _shown(self, message: Message) -> Message:
        shown = dict(message)
        if "content" in shown and not shown["content"]:
            shown["content"] = None if self.keeps_null and shown.get("tool_calls") else ""
        if thought := shown.get(REASONING):
            shown = dict.fromkeys(self.reasoning_names, thought) | shown
        return shown


def _has_forms(message: Message) -> bool:
    return not message.get("content") or REASONING in message


def forms_find(render: Render, *, has_text_arguments: bool) -> MessageForms:
    return MessageForms(_keeps_null(render, has_text_arguments), tuple(_names(render, has_text_arguments)))


def _keeps_null(render: Render, has_text_arguments: bool) -> bool:
    """Return whether null is written as no text. Content that is "" is right wherever the calls show either way."""
    with_null, with_text = (
        next(_rendered(render, _calling(has_text_arguments, content=content)), "") for content in (None, "")
    )
    if _FUNCTION not in with_null:
        return False
    return _FUNCTION not in with_text or with_null.count("None") <= with_text.count("None")


def _names(render: Render, has_text_arguments: bool) -> Iterator[str]:
    def is_read(name: str) -> bool:
        answers = (_calling(has_text_arguments, **{name: _THOUGHT}), _said(**{name: _THOUGHT}))
        return any(_THOUGHT in text for answer in answers for text in _rendered(render, answer))

    if not is_read(REASONING):
        yield from filter(is_read, _OTHER_NAMES)


def _rendered(render: Render, answer: Message) -> Iterator[str]:
    """Yield the renderings of a conversation with this answer, those in which something follows it first."""
    question = {"role": "user", "content": "Where?"}
    result = {"role": "tool", "tool_call_id": "abcdefghi", "name": _FUNCTION, "content": "Here."}
    follow_up = result if answer.get("tool_calls") else question
    for messages in ([question, answer, follow_up], [question, answer]):
        if (text := render(messages)) is not None:
            yield text


def _said(**fields: Any) -> Message:
    return {"role": "assistant", "content": "There.", **fields}


def _calling(has_text_arguments: bool, *, content: str | None = "", **fields: Any) -> Message:
    arguments: Any = '{"a": 1}' if has_text_arguments else {"a": 1}
    call = {"id": "abcdefghi", "type": "function", "function": {"name": _FUNCTION, "arguments": arguments}}
    return {"role": "assistant", "content": content, "tool_calls": [call], **fields}
