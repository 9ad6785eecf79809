"""Turns messages into a prompt's tokens: the part of a turn whose cost depends on the template and the agent.

It takes messages and the positions of the session's answers among them (`Cut`s, the likeliest first). It returns the
first cut whose rendering is a prefix of the whole rendering, and the tokens of the text after it. Templates are
programs and texts may be long, so the gateway does this in helper processes (`helpers`), which it can kill.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from seamlessflow.core.families import ModelFamily
from seamlessflow.core.guidance.answer_grammar import Demand
from seamlessflow.core.guidance.guide import GuideKind
from seamlessflow.data_plane.turns.rendering.chat_template import TemplateRefused
from seamlessflow.data_plane.turns.rendering.continuation import text_added
from seamlessflow.data_plane.turns.rendering.guides import demanded_guide
from seamlessflow.data_plane.turns.rendering.model_text import ModelText
from seamlessflow.data_plane.turns.rendering.tails import NUM_STAND_INS, tail_messages

MAX_CHARS_PER_TOKEN = (
    1024  # no vocabulary has longer tokens, so a longer text cannot fit and is not tokenised
)
LONG_TEXT_CHARS = 64 << 10


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """An answer that ends the first `num_messages` messages; `sampled_end`: its end-of-turn mark, or ""."""

    num_messages: int
    sampled_end: str


class PromptRequest(msgspec.Struct, frozen=True, array_like=True):
    model: str  # the model folder
    messages: Sequence[Mapping[str, Any]]  # as templates expect them
    tools: Sequence[Any] | None
    arguments: Mapping[str, Any]
    cuts: Sequence[Cut]
    max_tokens: int  # the model's context length
    family: ModelFamily = ModelFamily.AUTO
    text: str | None = None  # the prompt itself; there is nothing to render
    demand: Demand | None = None  # what the client demands of the answer
    # The reasoning of answers in the tree stays, whatever the template does with it.
    retains_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class AskedPrompt:
    """A request as its helper reads it; `demand_field`: the field of the client's request that a guide comes from."""

    body: bytes
    demand_field: str | None = None


def asked_prompt(request: PromptRequest) -> AskedPrompt:
    """Encode a request. Raises ValueError for what JSON cannot hold."""
    return AskedPrompt(msgspec.json.encode(request), None if request.demand is None else request.demand.field)


class Prompt(msgspec.Struct, frozen=True, array_like=True):
    cut: int | None  # the index of the cut that the new tokens follow; None: they are the whole prompt
    new_ids: bytes  # packed int32
    starts_in_reasoning: bool
    guide: tuple[GuideKind, str] | None = None  # what the demand means for the model: kind and text


class TextTooLong(ValueError):
    """The text cannot fit the model's context, however it is tokenised."""


def prompt_make(
    text: ModelText, request: PromptRequest, *, on_long_text: Callable[[], None] = lambda: None
) -> Prompt:
    """Make a prompt. Calls `on_long_text` before tokenising a long text.

    Raises TemplateRefused, TextTooLong and InvalidGuideError.
    """
    full, cut, new = _joined(text, request)
    if len(new) > request.max_tokens * MAX_CHARS_PER_TOKEN:
        raise TextTooLong(
            f"their text has {len(new)} characters, too many for the model's maximum context length of "
            f"{request.max_tokens} tokens"
        )
    if len(new) > LONG_TEXT_CHARS:
        on_long_text()
    think = text.family.think
    is_reasoning = bool(think) and full.rstrip().endswith(think)
    return Prompt(
        cut, text.encode(new), is_reasoning, _guide(text, request, starts_in_reasoning=is_reasoning)
    )


def _guide(
    text: ModelText, request: PromptRequest, *, starts_in_reasoning: bool
) -> tuple[GuideKind, str] | None:
    if request.demand is None:
        return None
    guide = demanded_guide(text, request.model, request.demand, starts_in_reasoning=starts_in_reasoning)
    return guide.kind, guide.text


def _joined(text: ModelText, request: PromptRequest) -> tuple[str, int | None, str]:
    """Return the rendering, the index of the cut that it continues, and its text after that."""
    if request.retains_reasoning and request.cuts:
        without = msgspec.structs.replace(request, messages=_without_known_reasoning(request))
        full, cut, new = _rendered_tail(text, without) or _rendered(text, without)
        if cut is not None:
            return full, cut, new
    return _rendered_tail(text, request) or _rendered(text, request)


def _without_known_reasoning(request: PromptRequest) -> Sequence[Mapping[str, Any]]:
    """Leave out the reasoning that the tree has as sampled tokens, so that no template rewrites it.

    The reasoning of later messages is the client's own and stays.
    """
    num_known = request.cuts[0].num_messages
    known = [
        {key: message[key] for key in message if key != "reasoning_content"}
        for message in request.messages[:num_known]
    ]
    return [*known, *request.messages[num_known:]]


def _rendered_tail(text: ModelText, request: PromptRequest) -> tuple[str, int, str] | None:
    """Render the likeliest answer and what follows it; None if that is not enough."""
    if not request.cuts:
        return None
    first = request.cuts[0]
    messages = tail_messages(
        text,
        request.messages,
        num_known=first.num_messages,
        tools=request.tools,
        arguments=request.arguments,
    )
    if messages is None:
        return None
    cut = Cut(NUM_STAND_INS + 1, first.sampled_end)
    try:
        full, number, new = _rendered(text, msgspec.structs.replace(request, messages=messages, cuts=[cut]))
    except TemplateRefused:  # rendering all messages says why, or accepts them
        return None
    return None if number is None else (full, number, new)


def _rendered(text: ModelText, request: PromptRequest) -> tuple[str, int | None, str]:
    """Return the rendering, the index of the first cut that it continues, and its text after that."""
    full = _full_text(text, request)
    return full, *_first_continued(text, request, full)


def _full_text(text: ModelText, request: PromptRequest) -> str:
    if request.text is not None:
        return request.text
    return _render(text, request, len(request.messages), add_generation_prompt=True)


def _first_continued(text: ModelText, request: PromptRequest, full: str) -> tuple[int | None, str]:
    for number, cut in enumerate(request.cuts):
        known = _render(text, request, cut.num_messages, add_generation_prompt=False)
        new = text_added(
            full, known, family=text.family, end_texts=text.end_texts, sampled_end=cut.sampled_end
        )
        if new is not None:
            return number, new
    return None, full


def _render(
    text: ModelText, request: PromptRequest, num_messages: int, *, add_generation_prompt: bool
) -> str:
    return text.template.render(
        request.messages[:num_messages],
        tools=request.tools,
        arguments=request.arguments,
        add_generation_prompt=add_generation_prompt,
    )
