"""Turns messages into a prompt's tokens: the part of a turn whose cost depends on the template and the agent.

It takes messages and the positions of the session's answers among them (`Cut`s, the likeliest first). It returns the
first cut whose rendering is a prefix of the whole rendering, and the tokens of the text after it. Templates are
programs and texts may be long, so the gateway does this in helper processes (`helpers`), which it can kill.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from seamlessflow.core.families import ModelFamily
from seamlessflow.data_plane.turns.rendering.model_text import ModelText

MAX_CHARS_PER_TOKEN = (
    1024  # no vocabulary has longer tokens, so a longer text cannot fit and is not tokenised
)
LONG_TEXT_CHARS = 64 << 10


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """An answer that ends the first `num_messages` messages; `ends_turn`: its last token is an end-of-turn mark."""

    num_messages: int
    ends_turn: bool


class PromptRequest(msgspec.Struct, frozen=True, array_like=True):
    model: str  # the model folder
    messages: Sequence[Mapping[str, Any]]  # as templates expect them
    tools: Sequence[Any] | None
    arguments: Mapping[str, Any]
    cuts: Sequence[Cut]
    max_tokens: int  # the model's context length
    family: ModelFamily = ModelFamily.AUTO
    text: str | None = None  # the prompt itself; there is nothing to render


class Prompt(msgspec.Struct, frozen=True, array_like=True):
    cut: int | None  # the index of the cut that the new tokens follow; None: they are the whole prompt
    new_ids: bytes  # packed int32
    starts_in_reasoning: bool


class TextTooLong(ValueError):
    """The text cannot fit the model's context, however it is tokenised."""


def prompt_make(
    text: ModelText, request: PromptRequest, *, on_long_text: Callable[[], None] = lambda: None
) -> Prompt:
    """Make a prompt. Calls `on_long_text` before tokenising a long text. Raises TemplateRefused and TextTooLong."""
    full = _full_text(text, request)
    cut, new = _first_continued(text, request, full)
    if len(new) > request.max_tokens * MAX_CHARS_PER_TOKEN:
        raise TextTooLong(
            f"their text has {len(new)} characters, too many for the model's maximum context length of "
            f"{request.max_tokens} tokens"
        )
    if len(new) > LONG_TEXT_CHARS:
        on_long_text()
    think = text.family.think
    return Prompt(cut, text.encode(new), bool(think) and full.rstrip().endswith(think))


def _full_text(text: ModelText, request: PromptRequest) -> str:
    if request.text is not None:
        return request.text
    return _render(text, request, len(request.messages), add_generation_prompt=True)


def _first_continued(text: ModelText, request: PromptRequest, full: str) -> tuple[int | None, str]:
    for number, cut in enumerate(request.cuts):
        known = _render(text, request, cut.num_messages, add_generation_prompt=False)
        if (new := _new_text(full, known, text, ends_turn=cut.ends_turn)) is not None:
            return number, new
    return None, full


def _new_text(full: str, known: str, text: ModelText, *, ends_turn: bool) -> str | None:
    """Return the part of `full` after the tokens of a path that ends in an answer; None if `full` does not continue it.

    Text after the last end-of-turn mark (usually a line break) was never sampled, so it is new. After an answer that
    was cut short, the mark itself is new too.
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
