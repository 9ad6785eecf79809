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
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from seamlessflow.core.trajectory.messages import message_text, tool_arguments
from seamlessflow.data_plane.turns.rendering.message_forms import MessageForms, forms_find

Message = Mapping[str, Any]
MAX_TEXT_CHARS = 64 << 20
EXAMPLE_TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add one.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}
_CHANGING = (
    "strftime_now",
    "random",
    "lipsum",
)  # what jinja offers, or we, that is not the same at each call


class TemplateRefused(ValueError):
    """The template raised an error for these messages, or cannot be compiled."""


class OutputTooLarge(ValueError):
    """The template wrote more than MAX_TEXT_CHARS."""


class GenerationTag(Extension):
    """`{% generation %}` marks the model's own text, for masks in training; the text is written as it is.

    The body is a block of its own, as in transformers: its variables are not visible outside.
    """

    tags = {"generation"}

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

    def _written(self, caller: Macro) -> str:
        written: str = caller()
        return written


class ChatTemplate:
    """A model's template with the special tokens it may use.

    It is a program: compiling or rendering it may never end. with_tools: the template of conversations with tools, if
    that is another one. has_text_arguments: it expects the arguments of calls as JSON text.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str],
        *,
        with_tools: str | None = None,
        has_text_arguments: bool = False,
    ) -> None:
        self._plain = _Source(source, special_tokens, has_text_arguments)
        self._with_tools = (
            self._plain
            if with_tools in (None, source)
            else _Source(str(with_tools), special_tokens, has_text_arguments)
        )

    @functools.cached_property
    def is_constant(self) -> bool:
        """Whether the same messages always give the same text, as far as the source shows: nothing asks for the time,
        or for chance."""
        return not any(name in one.text for name in _CHANGING for one in (self._plain, self._with_tools))

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Any] | None,
        arguments: Mapping[str, Any],
        add_generation_prompt: bool,
    ) -> str:
        """Render messages that `template_messages` has prepared. Raises TemplateRefused and OutputTooLarge."""
        source = self._plain if tools is None else self._with_tools
        return source.render(
            messages,
            {**arguments, "tools": tools, "add_generation_prompt": add_generation_prompt},
        )


class _Source:
    """One template, and the form in which it reads messages."""

    def __init__(self, text: str, special_tokens: Mapping[str, str], has_text_arguments: bool) -> None:
        self.text = text
        self._values = {**special_tokens, "documents": None}
        self._has_text_arguments = has_text_arguments

    def render(self, messages: Sequence[Message], values: Mapping[str, Any]) -> str:
        shown = self._forms.shown(messages)
        try:
            return self._render(shown, values)
        except TemplateRefused:
            if not self._forms.reasoning_names:
                raise
        # gpt-oss' template accepts no reasoning beside both text and calls.
        return self._render(MessageForms(self._forms.keeps_null).shown(messages), values)

    @functools.cached_property
    def _forms(self) -> MessageForms:
        def attempt(messages: Sequence[Message]) -> str | None:
            try:
                return self._render(messages, {"tools": [EXAMPLE_TOOL], "add_generation_prompt": False})
            except TemplateRefused:
                return None

        return forms_find(attempt, has_text_arguments=self._has_text_arguments)

    @functools.cached_property
    def _template(self) -> Template:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            return environment.from_string(self.text)
        except TemplateError as error:
            raise TemplateRefused(f"the model's chat template cannot be compiled: {error}") from error

    def _render(self, messages: Sequence[Message], values: Mapping[str, Any]) -> str:
        template = self._template
        try:
            return _joined(template.generate(**{**self._values, **values, "messages": messages}))
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
    """Return messages as templates expect them: content as a string or null, arguments of tool calls as objects.

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
    content = message.get("content")
    shown["content"] = None if content is None else message_text(content)
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


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)  # noqa: DTZ005 - templates expect local time, as transformers gives
