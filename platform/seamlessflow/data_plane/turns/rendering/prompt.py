"""Turns messages into a prompt's tokens: the part of a turn whose cost depends on the template and the agent.

It takes messages and the positions of the session's answers among them (`Cut`s, the likeliest first). It returns the
first cut whose rendering is a prefix of the whole rendering, and the tokens of the text after it. Templates are
programs and texts may be long, so the gateway does this in helper processes (`helpers`), which it can kill.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from seamlessflow.core.families import ModelFamily
from seamlessflow.core.guidance.answer_grammar import ToolDemand
from seamlessflow.core.guidance.guide import GuideKind
from seamlessflow.data_plane.turns.rendering.chat_template import TemplateRefused
from seamlessflow.data_plane.turns.rendering.continuation import TailKind, text_added
from seamlessflow.data_plane.turns.rendering.guides import demanded_guide
from seamlessflow.data_plane.turns.rendering.model_text import ModelText
from seamlessflow.data_plane.turns.rendering.tails import (
    NUM_STAND_INS,
    tail_kind,
    tail_messages,
    tail_of,
)
from seamlessflow.data_plane.turns.rendering.template_traits import renders_parallel_calls

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
    demand: ToolDemand | None = None  # the client's demand on the answer
    # The reasoning of answers in the tree stays, whatever the template does with it.
    retains_reasoning: bool = False
    is_tail: bool = False  # the messages are those of `tails.tail_of`; the one cut is the answer among them


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
    guide: tuple[GuideKind, str] | None = None  # the demand in the model's terms: kind and text
    is_of_tail: bool = False  # the last answer and what follows it were enough
    has_one_call: bool = False  # the template cannot render an answer with several calls


class TailNotEnough(ValueError):
    """The template needs all messages for this turn."""


class TextTooLong(ValueError):
    """The text cannot fit the model's context, however it is tokenised: it has at least `num_tokens`."""

    def __init__(self, num_tokens: int, max_tokens: int) -> None:
        super().__init__(f"the text has at least {num_tokens} tokens, and the context {max_tokens}")
        self.num_tokens, self.max_tokens = num_tokens, max_tokens


def prompt_make(
    text: ModelText, request: PromptRequest, *, on_long_text: Callable[[], None] = lambda: None
) -> Prompt:
    """Make a prompt. Calls `on_long_text` before tokenising a long text.

    Raises TemplateRefused, TailNotEnough, TextTooLong and InvalidGuideError.
    """
    full, cut, new, is_of_tail = _joined(text, request)
    if len(new) > request.max_tokens * MAX_CHARS_PER_TOKEN:
        raise TextTooLong(-(-len(new) // MAX_CHARS_PER_TOKEN), request.max_tokens)
    if len(new) > LONG_TEXT_CHARS:
        on_long_text()
    think = text.family.think
    is_reasoning = bool(think) and full.rstrip().endswith(think)
    has_one_call = bool(request.tools) and not renders_parallel_calls(text)
    encoded = _encoded(text, request, cut, new)
    return Prompt(cut, encoded, is_reasoning, _guide(text, request, full), is_of_tail, has_one_call)


def _encoded(text: ModelText, request: PromptRequest, cut: int | None, new: str) -> bytes:
    if request.text is not None:
        return text.encode_raw(new)
    if cut is None:
        return text.encode(new)
    return text.encode(new, after=_last_mark(text, request.cuts[cut]))


def _last_mark(text: ModelText, cut: Cut) -> str:
    """Return the mark after which the new text follows. After an answer that was cut short it is any that takes no
    white space, so that the new text goes on and does not begin."""
    return cut.sampled_end or text.neutral_mark


def _guide(text: ModelText, request: PromptRequest, full: str) -> tuple[GuideKind, str] | None:
    if request.demand is None:
        return None
    guide = demanded_guide(text, request.model, request.demand, prompt=full)
    return guide.kind, guide.text


class _Joined(NamedTuple):
    """The rendering, the index of the cut that it continues, and its text after that."""

    full: str
    cut: int | None
    new: str
    is_of_tail: bool = False


def _joined(text: ModelText, request: PromptRequest) -> _Joined:
    if request.is_tail:
        joined = _rendered_part(text, request)
        if joined is None:
            raise TailNotEnough
        return joined
    if request.retains_reasoning and request.cuts:
        without = msgspec.structs.replace(request, messages=_without_known_reasoning(request))
        joined = _rendered_tail(text, without) or _rendered(text, without)
        if joined.cut is not None:
            return joined
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


def _rendered_tail(text: ModelText, request: PromptRequest) -> _Joined | None:
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
    return _rendered_part(text, msgspec.structs.replace(request, messages=messages, cuts=[cut]))


def _rendered_part(text: ModelText, request: PromptRequest) -> _Joined | None:
    try:
        joined = _rendered(text, request)
    except TemplateRefused:  # rendering all messages says why, or accepts them
        return None
    return None if joined.cut is None else joined._replace(is_of_tail=True)


def _rendered(text: ModelText, request: PromptRequest) -> _Joined:
    full = _full_text(text, request)
    return _Joined(full, *_first_continued(text, request, full))


def _full_text(text: ModelText, request: PromptRequest) -> str:
    if request.text is not None:
        return request.text
    return _render(text, request, len(request.messages), add_generation_prompt=True)


def _first_continued(text: ModelText, request: PromptRequest, full: str) -> tuple[int | None, str]:
    for number, cut in enumerate(request.cuts):
        known = _render(text, request, cut.num_messages, add_generation_prompt=False)
        new = text_added(
            full,
            known,
            family=text.family,
            end_texts=text.end_texts,
            sampled_end=cut.sampled_end,
            special_texts=text.special_texts,
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


def request_of_tail(request: PromptRequest) -> PromptRequest:
    """Return what to ask for if the likeliest answer and what follows it are enough."""
    first = request.cuts[0]
    return msgspec.structs.replace(
        request,
        messages=tail_of(request.messages, num_known=first.num_messages),
        cuts=[Cut(NUM_STAND_INS + 1, first.sampled_end)],
        is_tail=True,
    )


def request_kind(text: ModelText, request: PromptRequest) -> TailKind | None:
    """Return the kind of turn that decides whether its tail is enough; None if all messages are needed."""
    if not request.cuts or request.retains_reasoning:
        return None
    return tail_kind(
        text,
        request.messages,
        num_known=request.cuts[0].num_messages,
        tools=request.tools,
        arguments=request.arguments,
    )
