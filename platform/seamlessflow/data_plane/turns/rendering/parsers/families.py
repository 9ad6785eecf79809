"""The facts of each model family: its marks, its parser, and how its templates expect tool calls.

Invariant: every mark that a family's parser reads is in its `marks`, so that it stays in the text even if the tokenizer
calls it special.
"""

from dataclasses import dataclass
from typing import Protocol

from seamlessflow.core.families import ModelFamily
from seamlessflow.data_plane.turns.rendering.parsers.call_ids import LONG_IDS, SHORT_IDS, CallIds
from seamlessflow.data_plane.turns.rendering.parsers.deltas import OutputParser, Tools
from seamlessflow.data_plane.turns.rendering.parsers.harmony import HARMONY_MARKS, HarmonyParser
from seamlessflow.data_plane.turns.rendering.parsers.json_calls import HERMES, LLAMA
from seamlessflow.data_plane.turns.rendering.parsers.marked_calls import (
    THINK_MARKS,
    CallSyntax,
    MarkedCallsParser,
)
from seamlessflow.data_plane.turns.rendering.parsers.tagged_arguments import GLM, QWEN_XML
from seamlessflow.data_plane.turns.rendering.parsers.verbatim_arguments import (
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    KIMI_K2,
    MISTRAL,
)


class ParserMaker(Protocol):
    def __call__(
        self, *, tools: Tools | None, starts_in_reasoning: bool = False, has_one_call: bool = False
    ) -> OutputParser: ...


@dataclass(frozen=True, slots=True)
class Family:
    """One family.

    has_text_arguments: its templates expect the arguments of calls as JSON text, not as objects.
    ends_with_opener: its templates do not end an answer; the model ends its turn with the mark that opens the next.
    past_ends: pairs of marks: its templates end the last answer with the first, and earlier answers with the second.
    """

    name: ModelFamily
    marks: frozenset[str]
    parser: ParserMaker
    think: str = THINK_MARKS[0]  # a prompt that ends with it opens the reasoning
    end_think: str = THINK_MARKS[1]
    has_text_arguments: bool = False
    call_ids: CallIds = LONG_IDS
    ends_with_opener: bool = False
    past_ends: tuple[tuple[str, str], ...] = ()

    def past_end(self, mark: str) -> str:
        """Return the mark that ends an answer, once messages follow it, in place of `mark`."""
        return dict(self.past_ends).get(mark, mark)


def family_get(name: ModelFamily) -> Family:
    """Return a family by its name. `auto` must have been resolved before."""
    return _FAMILIES[name]


def _marked(
    name: ModelFamily,
    syntax: CallSyntax,
    *others: str,
    think: tuple[str, str] = THINK_MARKS,
    has_text_arguments: bool = False,
    call_ids: CallIds = LONG_IDS,
    ends_with_opener: bool = False,
) -> Family:
    """Describe a family whose calls stand between marks; `others`: marks that may occur inside a call."""

    def parser(
        *, tools: Tools | None, starts_in_reasoning: bool = False, has_one_call: bool = False
    ) -> OutputParser:
        return MarkedCallsParser(
            syntax,
            tools=tools,
            starts_in_reasoning=starts_in_reasoning,
            think=think,
            has_one_call=has_one_call,
        )

    return Family(
        name,
        frozenset({*syntax.marks, *syntax.ends, *think, *others}),
        parser,
        think=think[0],
        end_think=think[1],
        has_text_arguments=has_text_arguments,
        call_ids=call_ids,
        ends_with_opener=ends_with_opener,
    )


_FAMILIES = {
    family.name: family
    for family in (
        _marked(ModelFamily.HERMES, HERMES),
        _marked(ModelFamily.QWEN3_CODER, QWEN_XML),
        _marked(
            ModelFamily.GLM,
            GLM,
            "<arg_key>",
            "</arg_key>",
            "<arg_value>",
            "</arg_value>",
            ends_with_opener=True,
        ),
        _marked(ModelFamily.LLAMA3, LLAMA),
        _marked(ModelFamily.DEEPSEEK_V3, DEEPSEEK_V3, "<｜tool▁sep｜>", has_text_arguments=True),
        _marked(ModelFamily.DEEPSEEK_V31, DEEPSEEK_V31, "<｜tool▁sep｜>", has_text_arguments=True),
        _marked(ModelFamily.KIMI_K2, KIMI_K2, "<|tool_call_argument_begin|>"),
        _marked(
            ModelFamily.MISTRAL,
            MISTRAL,
            "[ARGS]",
            "[CALL_ID]",
            think=("[THINK]", "[/THINK]"),
            call_ids=SHORT_IDS,
        ),
        Family(
            ModelFamily.GPT_OSS,
            frozenset(HARMONY_MARKS),
            HarmonyParser,
            think="",
            end_think="",
            past_ends=(("<|return|>", "<|end|>"),),
        ),
    )
}
