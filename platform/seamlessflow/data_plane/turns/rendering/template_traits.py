"""What a model's template can do, found by rendering small conversations, once for each model.

It takes a `ModelText` and returns whether an answer of several calls can be rendered back, and whether the template
writes reasoning. A template that refuses the conversation of the trial says nothing: the usual answer is assumed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seamlessflow.data_plane.turns.rendering.chat_template import TemplateRefused, template_messages
from seamlessflow.data_plane.turns.rendering.model_text import ModelText

_QUESTION = {"role": "user", "content": "What is it?"}
_TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}},
}


def renders_parallel_calls(text: ModelText) -> bool:
    """Return whether the template renders an answer of two calls, where it renders one of one call."""
    return _found(text, "parallel", lambda: _renders_calls(text, 2) or not _renders_calls(text, 1))


def writes_reasoning(text: ModelText) -> bool:
    """Return whether the template writes the marks of reasoning: before the answer, or around its reasoning."""
    return _found(text, "reasoning", lambda: _writes_reasoning(text))


def _found(text: ModelText, name: str, find: Callable[[], bool]) -> bool:
    if name not in text.traits:
        text.traits[name] = find()
    return text.traits[name]


def _renders_calls(text: ModelText, num_calls: int) -> bool:
    ids = text.family.call_ids
    stem = ids.stem_of(b"trial")
    calls = [
        {"id": ids.call_id(stem, n), "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for n in range(num_calls)
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "It."} for call in calls]
    answer = {"role": "assistant", "content": "", "tool_calls": calls}
    return _rendered(text, [_QUESTION, answer, *results], tools=[_TOOL]) is not None


def _writes_reasoning(text: ModelText) -> bool:
    think, end_think = text.family.think, text.family.end_think
    if not end_think:
        return True
    answer = {"role": "assistant", "content": "It.", "reasoning_content": "Hm."}
    asked, answered = _rendered(text, [_QUESTION]), _rendered(text, [_QUESTION, answer])
    is_opened = asked is not None and asked.rstrip().endswith(think)
    return is_opened or answered is None or end_think in answered


def _rendered(
    text: ModelText, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Any] | None = None
) -> str | None:
    prepared = template_messages(messages, has_text_arguments=text.family.has_text_arguments)
    is_asked = messages[-1]["role"] != "assistant"
    try:
        return text.template.render(prepared, tools=tools, arguments={}, add_generation_prompt=is_asked)
    except TemplateRefused:
        return None
