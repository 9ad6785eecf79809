"""Decides whether the last answer and what follows it are enough to render what a turn adds.

A template is a program over all messages, so rendering them takes longer with every turn. Most templates, however,
write what follows an answer without regard to what came before it. `tail_messages` takes a turn's messages and returns
the few that are enough, or None. Invariant: it returns them only for a kind of turn that the model's own template
rendered alike both ways on golden conversations; each kind is tried once per model.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from seamlessflow.data_plane.turns.rendering.chat_template import (
    EXAMPLE_TOOL,
    TemplateRefused,
    template_messages,
)
from seamlessflow.data_plane.turns.rendering.continuation import TailKind, text_added
from seamlessflow.data_plane.turns.rendering.model_text import ModelText

Messages = Sequence[Mapping[str, Any]]
NUM_STAND_INS = 1  # messages in place of all that came before the answer
MAX_KINDS = 256  # template arguments come from clients
_STAND_IN = {"role": "user", "content": "?"}
_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"})
_NUM_GOLDEN_CALLS = 6


def tail_messages(
    text: ModelText,
    messages: Messages,
    *,
    num_known: int,
    tools: Sequence[Any] | None,
    arguments: Mapping[str, Any],
) -> Messages | None:
    """Return the messages to render in place of all; NUM_STAND_INS precede the answer, message `num_known` - 1."""
    kind = tail_kind(text, messages, num_known=num_known, tools=tools, arguments=arguments)
    if kind is None:
        return None
    if kind not in text.proven_tails:
        if len(text.proven_tails) >= MAX_KINDS:
            text.proven_tails.clear()
        text.proven_tails[kind] = _is_proven(text, kind, arguments)
    return tail_of(messages, num_known=num_known) if text.proven_tails[kind] else None


def tail_of(messages: Messages, *, num_known: int) -> Messages:
    return [_STAND_IN, *messages[num_known - 1 :]]


def tail_kind(
    text: ModelText,
    messages: Messages,
    *,
    num_known: int,
    tools: Sequence[Any] | None,
    arguments: Mapping[str, Any],
) -> TailKind | None:
    """Return a turn's kind; None if no golden conversation is like it, or if its tail would not be shorter."""
    if num_known <= NUM_STAND_INS + 1:
        return None
    answer, roles = messages[num_known - 1], [message.get("role") for message in messages[num_known:]]
    num_results = roles.count("tool")
    expected = ["tool"] * num_results + ["user"] * (len(roles) - num_results)
    num_calls = len(answer.get("tool_calls") or ())
    is_odd = bool(num_calls) != bool(num_results) or not (tools or _is_without_calls(messages))
    if is_odd or roles != expected or not all(map(_FIELDS.issuperset, messages)):
        return None
    return TailKind(
        has_tools=bool(tools),
        num_calls=min(num_calls, 2),
        has_question="user" in roles,
        has_reasoning=any(_has_reasoning(message, text.family.end_think) for message in messages),
        arguments=msgspec.json.encode(arguments, order="deterministic"),
    )


def _is_without_calls(messages: Messages) -> bool:
    return not any(message.get("role") == "tool" or message.get("tool_calls") for message in messages)


def _has_reasoning(message: Mapping[str, Any], mark: str) -> bool:
    if message.get("role") != "assistant":
        return False
    return bool(message.get("reasoning_content")) or bool(mark and mark in (message["content"] or ""))


def _is_proven(text: ModelText, kind: TailKind, arguments: Mapping[str, Any]) -> bool:
    tools = [EXAMPLE_TOOL] if kind.has_tools else None
    has_text = text.family.has_text_arguments
    return all(
        _is_alike(text, template_messages(known, has_text_arguments=has_text), follow_up, tools, arguments)
        for known, follow_up in _golden(kind)
    )


def _is_alike(
    text: ModelText, known: Messages, follow_up: Messages, tools: Sequence[Any] | None, arguments: Any
) -> bool:
    """Return whether the template writes the same after an answer with and without what came before."""

    def added(before: Messages, sampled_end: str) -> str | None:
        render = text.template.render
        return text_added(
            render([*before, *follow_up], tools=tools, arguments=arguments, add_generation_prompt=True),
            render(before, tools=tools, arguments=arguments, add_generation_prompt=False),
            family=text.family,
            end_texts=text.end_texts,
            sampled_end=sampled_end,
            special_texts=text.special_texts,
        )

    try:
        wholes = [added(known, end) for end in ("", *text.end_texts)]
        return None not in wholes and wholes == [
            added([_STAND_IN, known[-1]], end) for end in ("", *text.end_texts)
        ]
    except TemplateRefused:
        return False


def _golden(kind: TailKind) -> Iterator[tuple[Messages, Messages]]:
    """Yield conversations up to an answer, and what follows it."""
    system = {"role": "system", "content": "Be brief."}
    loops = [message for number in range(_NUM_GOLDEN_CALLS) for message in _call(kind, number)]
    earlier = [_user(1), *(loops if kind.has_tools else []), _said(kind, "It is 1.")]
    answered, *results = (
        _call(kind, 9, num_calls=kind.num_calls) if kind.num_calls else [_said(kind, "It is 2.")]
    )
    follow_up = [*results, _user(3)] if kind.has_question else results
    for before in (
        [_user(2)],
        [system, _user(2)],
        [*earlier, _user(2)],
        [system, *earlier, *earlier, _user(2)],
    ):
        yield [*before, answered], follow_up
        if kind.has_tools:
            yield [*before, *loops, answered], follow_up


def _user(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"What is {number} + {number}?"}


def _said(kind: TailKind, content: str) -> dict[str, Any]:
    reasoning = {"reasoning_content": "Easy."} if kind.has_reasoning else {}
    return {"role": "assistant", "content": content, **reasoning}


def _call(kind: TailKind, number: int, num_calls: int = 1) -> list[dict[str, Any]]:
    """Return an answer that calls a tool, and the results. The identifiers have the form that Mistral demands."""
    names = [f"golden{number:02}{index}" for index in range(num_calls)]
    calls = [
        {"id": name, "type": "function", "function": {"name": "add", "arguments": f'{{"a": {number}}}'}}
        for name in names
    ]
    results = [{"role": "tool", "tool_call_id": name, "content": f"It is {number}."} for name in names]
    return [{**_said(kind, ""), "tool_calls": calls}, *results]
