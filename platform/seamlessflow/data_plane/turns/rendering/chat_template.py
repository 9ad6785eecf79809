"""Renders chat templates in a sandbox, with the same result as transformers.

`ChatTemplate` takes messages in the OpenAI format and returns prompt text. Invariant: a template gets the same values,
filters and white-space rules as in `PreTrainedTokenizer.apply_chat_template`.
"""

import datetime
import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from seamlessflow.core.trajectory.messages import message_text, tool_arguments

Message = Mapping[str, Any]
MAX_TEXT_CHARS = 64 << 20
_CHANGING = (
    "strftime_now",
    "random",
    "lipsum",
)  # what jinja offers, or we, that is not the same at each call


class TemplateRefused(ValueError):
    """The template raised an error for these messages, or cannot be compiled."""


class OutputTooLarge(ValueError):
    """The template wrote more than MAX_TEXT_CHARS."""


class ChatTemplate:
    """A template with the special tokens it may use. It is a program: compiling or rendering it may never end."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._source = source
        self._special_tokens = dict(special_tokens)

    @functools.cached_property
    def is_constant(self) -> bool:
        """Whether the same messages always give the same text, as far as the source shows: nothing asks for the time,
        or for chance."""
        return not any(name in self._source for name in _CHANGING)

    @functools.cached_property
    def _template(self) -> Template:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            return environment.from_string(self._source)
        except TemplateError as error:
            raise TemplateRefused(f"the model's chat template cannot be compiled: {error}") from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Any] | None,
        arguments: Mapping[str, Any],
        add_generation_prompt: bool,
    ) -> str:
        """Render messages that `template_messages` has prepared. Raises TemplateRefused and OutputTooLarge."""
        values = self._special_tokens | dict(arguments)
        try:
            pieces = self._template.generate(
                **values
                | {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
            )
            return _joined(pieces)
        except OutputTooLarge:
            raise
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise TemplateRefused(f"the model's chat template refused the messages: {error}") from error


def _joined(pieces: Iterable[str]) -> str:
    parts: list[str] = []
    num_chars = 0
    for piece in pieces:
        num_chars += len(piece)
        if num_chars > MAX_TEXT_CHARS:
            raise OutputTooLarge(f"the model's chat template writes more than {MAX_TEXT_CHARS} characters")
        parts.append(piece)
    return "".join(parts)


def template_messages(messages: Sequence[Message], *, has_text_arguments: bool = False) -> list[Message]:
    """Return messages as templates expect them: content as a string, arguments of tool calls as objects.

    has_text_arguments: leave the arguments as JSON text. Raises ValueError if the content of a message is neither text
    nor null.
    """
    arguments_of = _arguments_text if has_text_arguments else tool_arguments
    return [
        message if _is_plain(message) else _template_message(message, arguments_of) for message in messages
    ]


def _is_plain(message: Message) -> bool:
    """Return whether a message is already as templates expect it, as most are."""
    return type(message.get("content")) is str and "tool_calls" not in message


def _arguments_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else _tojson(arguments)


def _template_message(message: Message, arguments_of: Callable[[Any], Any]) -> dict[str, Any]:
    shown = dict(message)
    shown["content"] = message_text(message.get("content"))
    if calls := message.get("tool_calls"):
        shown["tool_calls"] = [
            {
                **call,
                "function": {
                    **call["function"],
                    "arguments": arguments_of(call["function"].get("arguments")),
                },
            }
            for call in calls
        ]
    else:
        shown.pop("tool_calls", None)
    return shown


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)  # noqa: DTZ005 - templates expect local time, as transformers gives
