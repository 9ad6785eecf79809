"""How each model family writes a tool call, as elements of a grammar.

A form has the marks around all calls and a function that returns the elements of one call: marks, texts, and the
position of the arguments, which are JSON or tagged one by one. gpt-oss has no form: its calls are messages of their
own.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seamlessflow.core.families import ModelFamily
from seamlessflow.core.guidance.guide import InvalidGuideError

_PLAIN_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Mark:
    """One special token of the model if it has such a token, or else the text."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression between slashes."""

    text: str


class Arguments:
    """The position of the arguments, as JSON."""


@dataclass(frozen=True, slots=True)
class TaggedArguments:
    """The position of the arguments, each as `opens`, its name, `names`, its value and `closes`.

    excluded: what no text that is a value may contain, because a parser would end there.
    """

    opens: tuple[Mark | Text, ...]
    names: tuple["Mark | Text | Pattern", ...]
    closes: tuple["Mark | Text | Pattern", ...]
    excluded: tuple[str, ...]


Element = Mark | Text | Pattern | Arguments | TaggedArguments
ARGUMENTS = Arguments()
LINE_BREAK = Pattern(r"/\n?/")


@dataclass(frozen=True, slots=True)
class CallForm:
    """`opening`: how every call begins; text that begins otherwise is content."""

    opening: Mark | Text
    call: Callable[[str], Sequence[Element]]  # of the tool's name
    leads: tuple[Element, ...] = ()
    between: tuple[Element, ...] = ()
    trails: tuple[Element, ...] = ()


def call_form(family: ModelFamily, *, has_token: Callable[[str], bool]) -> CallForm:
    """Return the form of a family. Raises InvalidGuideError if its calls cannot be forced."""
    if family is ModelFamily.MISTRAL and not has_token("[ARGS]"):
        return _MISTRAL_ARRAY
    form = _FORMS.get(family)
    if form is None:
        raise InvalidGuideError(
            f"tool calls of the model family {family} cannot be forced or made strict; those of "
            f"{', '.join(_FORMS)} can"
        )
    return form


def _plain(name: str) -> str:
    if not _PLAIN_NAME.fullmatch(name):
        raise InvalidGuideError(
            f"a tool of this model may have letters, digits, '_', '.' and '-' in its name: {name!r}"
        )
    return name


def _json_call(field: str) -> Callable[[str], Sequence[Element]]:
    """Return a JSON object whose field `field` has the arguments."""
    return lambda name: (Text(f'{{"name": {json.dumps(name)}, "{field}": '), ARGUMENTS, Text("}"))


def _hermes(name: str) -> Sequence[Element]:
    object_parts = _json_call("arguments")(name)
    return (Mark("<tool_call>"), LINE_BREAK, *object_parts, LINE_BREAK, Mark("</tool_call>"))


def _qwen3_coder(name: str) -> Sequence[Element]:
    return (
        Mark("<tool_call>"),
        Text(f"\n<function={_plain(name)}>\n"),
        TaggedArguments(
            opens=(Text("<parameter="),),
            names=(Text(">\n"),),
            closes=(Text("\n</parameter>\n"),),
            excluded=("</parameter>", "</function>", "</tool_call>"),
        ),
        Text("</function>\n"),
        Mark("</tool_call>"),
    )


def _glm(name: str) -> Sequence[Element]:
    return (
        Mark("<tool_call>"),
        Text(_plain(name)),
        LINE_BREAK,
        TaggedArguments(
            opens=(Mark("<arg_key>"),),
            names=(Mark("</arg_key>"), LINE_BREAK, Mark("<arg_value>")),
            closes=(Mark("</arg_value>"), LINE_BREAK),
            excluded=("</arg_value>", "</tool_call>"),
        ),
        Mark("</tool_call>"),
    )


def _deepseek_v3(name: str) -> Sequence[Element]:
    return (
        Mark("<｜tool▁call▁begin｜>"),
        Text("function"),
        Mark("<｜tool▁sep｜>"),
        Text(f"{_plain(name)}\n```json\n"),
        ARGUMENTS,
        Text("\n```"),
        Mark("<｜tool▁call▁end｜>"),
    )


def _deepseek_v31(name: str) -> Sequence[Element]:
    begin, separator, end = (Mark(f"<｜tool▁{word}｜>") for word in ("call▁begin", "sep", "call▁end"))
    return (begin, Text(_plain(name)), separator, ARGUMENTS, end)


def _kimi_k2(name: str) -> Sequence[Element]:
    return (
        Mark("<|tool_call_begin|>"),
        Text(f"functions.{_plain(name)}:"),
        Pattern("/[0-9]{1,3}/"),
        Mark("<|tool_call_argument_begin|>"),
        ARGUMENTS,
        Mark("<|tool_call_end|>"),
    )


def _mistral(name: str) -> Sequence[Element]:
    return (Mark("[TOOL_CALLS]"), Text(_plain(name)), Mark("[ARGS]"), ARGUMENTS)


_DEEPSEEK_LEADS = (Mark("<｜tool▁calls▁begin｜>"),)
_DEEPSEEK_TRAILS = (Mark("<｜tool▁calls▁end｜>"),)
_MISTRAL_ARRAY = CallForm(
    Mark("[TOOL_CALLS]"),
    _json_call("arguments"),
    leads=(Mark("[TOOL_CALLS]"), Text("[")),
    between=(Text(", "),),
    trails=(Text("]"),),
)
_FORMS = {
    ModelFamily.HERMES: CallForm(Mark("<tool_call>"), _hermes, between=(LINE_BREAK,)),
    ModelFamily.QWEN3_CODER: CallForm(Mark("<tool_call>"), _qwen3_coder, between=(Text("\n"),)),
    ModelFamily.GLM: CallForm(Mark("<tool_call>"), _glm, between=(LINE_BREAK,)),
    ModelFamily.LLAMA3: CallForm(Text("{"), _json_call("parameters"), between=(Text("; "),)),
    ModelFamily.DEEPSEEK_V3: CallForm(
        _DEEPSEEK_LEADS[0],
        _deepseek_v3,
        leads=_DEEPSEEK_LEADS,
        between=(LINE_BREAK,),
        trails=_DEEPSEEK_TRAILS,
    ),
    ModelFamily.DEEPSEEK_V31: CallForm(
        _DEEPSEEK_LEADS[0], _deepseek_v31, leads=_DEEPSEEK_LEADS, trails=_DEEPSEEK_TRAILS
    ),
    ModelFamily.KIMI_K2: CallForm(
        Mark("<|tool_calls_section_begin|>"),
        _kimi_k2,
        leads=(Mark("<|tool_calls_section_begin|>"),),
        trails=(Mark("<|tool_calls_section_end|>"),),
    ),
    ModelFamily.MISTRAL: CallForm(Mark("[TOOL_CALLS]"), _mistral),
}
