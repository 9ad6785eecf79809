"""Turns messages into a prompt's tokens: the part of a turn whose cost a model's author or an agent decides.

It takes messages and the places of the session's answers among them (`Cut`s, the likeliest first). It returns the first
cut whose rendering the whole one continues, and the tokens of the text after it. Templates are programs and texts may
be long, so the gateway has a helper process do this (`helpers`), which it can kill.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from seamlessflow.data_plane.turns.rendering.model_text import ModelText
from seamlessflow.data_plane.turns.rendering.output_parser import THINK

MAX_CHARS_PER_TOKEN = (
    1024  # no vocabulary has tokens so long: a text of more cannot fit and need not be tokenised
)
LONG_TEXT_CHARS = 64 << 10


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """An answer after `num_messages` of the messages. `ends_turn`: its last token is an end-of-turn mark."""

    num_messages: int
    ends_turn: bool


class PromptRequest(msgspec.Struct, frozen=True, array_like=True):
    model: str  # its folder
    messages: Sequence[Mapping[str, Any]]  # as templates expect them
    tools: Sequence[Any] | None
    arguments: Mapping[str, Any]
    cuts: Sequence[Cut]
    max_tokens: int  # of the model's context


class Prompt(msgspec.Struct, frozen=True, array_like=True):
    cut: int | None  # which of the cuts the new tokens follow; None: they are the whole prompt
    new_ids: bytes  # packed int32
    starts_in_reasoning: bool


class TextTooLong(ValueError):
    """The text cannot fit the model's context, whatever its tokens are."""


def prompt_make(
    text: ModelText, request: PromptRequest, *, on_long_text: Callable[[], None] = lambda: None
) -> Prompt:
    """Make a prompt. `on_long_text` is called before a long tokenising. Raises TemplateRefused and TextTooLong."""
    full = _render(text, request, len(request.messages), add_generation_prompt=True)
    cut, new = _first_continued(text, request, full)
    if len(new) > request.max_tokens * MAX_CHARS_PER_TOKEN:
        raise TextTooLong(
            f"the text of the messages has {len(new)} characters, and the model's maximum context length is "
            f"{request.max_tokens} tokens"
        )
    if len(new) > LONG_TEXT_CHARS:
        on_long_text()
    return Prompt(cut, text.encode(new), full.rstrip().endswith(THINK))


def _first_continued(text: ModelText, request: PromptRequest, full: str) -> tuple[int | None, str]:
    for number, cut in enumerate(request.cuts):
        known = _render(text, request, cut.num_messages, add_generation_prompt=False)
        if (new := _new_text(full, known, text, ends_turn=cut.ends_turn)) is not None:
            return number, new
    return None, full


def _new_text(full: str, known: str, text: ModelText, *, ends_turn: bool) -> str | None:
    """Return what `full` says after the tokens of the path that ends in an answer; None when history reads differently.

    What follows the last end-of-turn mark (a line break, usually) was never sampled: it is new. So is the mark itself
    after an answer that was cut short.
    """
    if not full.startswith(known):
        return None
    at, mark = max((known.rfind(end), end) for end in text.end_texts)
    if at < 0 or known[at + len(mark) :].strip():
        return None
    return full[at + len(mark) if ends_turn else at :]


def _render(
    text: ModelText, request: PromptRequest, num_messages: int, *, add_generation_prompt: bool
) -> str:
    return text.template.render(
        request.messages[:num_messages],
        tools=request.tools,
        arguments=request.arguments,
        add_generation_prompt=add_generation_prompt,
    )
