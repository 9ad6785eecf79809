"""`python -m seamlessflow.data_plane.turns.rendering.folder_check FOLDER FAMILY`: tries a model folder's text files.

It loads the folder as a gateway does, renders a conversation with tools, calls and results, and reads the call back
with the family's parser. It writes one `FolderReport` as JSON to standard output. Templates are programs, so this is a
process of its own, with limits of processor time and memory.
"""

import resource
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from seamlessflow.core.families import FAMILY_TITLES, ModelFamily
from seamlessflow.core.protocol.model_folders import FolderReport
from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText
from seamlessflow.data_plane.turns.rendering.chat_template import (
    EXAMPLE_TOOL,
    Message,
    OutputTooLarge,
    TemplateRefused,
    template_messages,
)
from seamlessflow.data_plane.turns.rendering.continuation import text_added
from seamlessflow.data_plane.turns.rendering.model_files import ModelUnusable
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load

CPU_S = 30
MEMORY_BYTES = 2 << 30
_NAME, _ARGUMENTS = "add", '{"a": 41}'
_QUESTION: Message = {"role": "user", "content": "What is 41 + 1?"}
_ANSWER: Message = {"role": "assistant", "content": "It is 42."}
_TOOLS = [EXAMPLE_TOOL]


def main() -> int:
    folder, family = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        report = folder_check(folder, ModelFamily(family))
    except MemoryError:
        report = FolderReport(refusal=f"its text files take more than {MEMORY_BYTES >> 30} GiB of memory")
    sys.stdout.buffer.write(msgspec.json.encode(report))
    return 0


def folder_check(folder: str, family: ModelFamily = ModelFamily.AUTO) -> FolderReport:
    try:
        text = model_text_load(folder, family)
        _check_question(text)
        notes = tuple(_notes(text))
        unread = _unread(text)
    except (ModelUnusable, TemplateRefused, OutputTooLarge) as error:
        return FolderReport(refusal=str(error).replace(folder, Path(folder).name))
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # settings of other types than usual
        return FolderReport(refusal=f"its text files cannot be read: {error!r}")
    except RecursionError:
        return FolderReport(refusal="the model's chat template calls itself too often")
    return FolderReport(
        family=text.family.name,
        is_verified=unread is None,
        notes=notes if unread is None else (unread, *notes),
    )


def _check_question(text: ModelText) -> None:
    """Raise ModelUnusable or TemplateRefused if no turn could be served."""
    written = _render(text, [_QUESTION])
    if str(_QUESTION["content"]) not in written:
        raise ModelUnusable(
            "the model's chat template writes nothing of a message whose content is a text; use a template that "
            "accepts text, as those of models without images do"
        )
    if not text.encode(written):
        raise ModelUnusable("tokenizer.json of the model folder makes no tokens of a text")


def _notes(text: ModelText) -> Iterator[str]:
    system: Message = {"role": "system", "content": "Be brief."}
    two_calls = [_QUESTION, *_called(text, 2)]
    for name, messages, tools in (
        ("a system message", [system, _QUESTION], None),
        ("a second question", [_QUESTION, _ANSWER, _QUESTION], None),
        ("the result of a call", [_QUESTION, *_called(text, 1)], _TOOLS),
        ("two calls in one answer", two_calls, _TOOLS),
    ):
        if (refusal := _refusal(text, messages, tools)) is not None:
            yield f"Conversations with {name} are refused: {refusal}."
    if not _is_continued(text):
        ends = ", ".join(text.end_texts)
        yield (
            "Each question begins a new branch, because the chat template writes an earlier answer differently once "
            f"another message follows, or ends it with none of the model's end-of-turn tokens ({ends})."
        )


def _refusal(text: ModelText, messages: Sequence[Message], tools: Sequence[Any] | None) -> str | None:
    try:
        _render(text, messages, tools)
    except TemplateRefused as error:
        return str(error)
    return None


def _is_continued(text: ModelText) -> bool:
    """Return whether a turn goes on after a plain answer, as far as its conversation can be rendered at all."""
    known, follow_up = [_QUESTION, _ANSWER], [_QUESTION]
    try:
        full, before = _render(text, [*known, *follow_up]), _render(text, known, is_prompt=False)
    except TemplateRefused:
        return True
    added = text_added(
        full,
        before,
        family=text.family,
        end_texts=text.end_texts,
        sampled_end=text.end_texts[0],
        special_texts=text.special_texts,
    )
    return added is not None


def _unread(text: ModelText) -> str | None:
    """Return why it is not certain that the model's calls are read; None if one was read back."""
    title = FAMILY_TITLES[text.family.name]
    try:
        written = _written_call(text)
    except TemplateRefused as error:
        return f"Unverified: the chat template refuses calls, which are read as those of {title}: {error}."
    if written is None or _NAME not in written[0]:
        return (
            f"Unverified: the chat template writes no calls; those of the model are read as those of {title}."
        )
    answer, starts_in_reasoning = written
    parser = AnswerText(text, stop=(), tools=_TOOLS, starts_in_reasoning=starts_in_reasoning)
    parser.push(text.encode(answer))
    parser.finish()
    calls = [(call.name, msgspec.json.decode(call.arguments)) for call in parser.parsed.tool_calls]
    if calls == [(_NAME, msgspec.json.decode(_ARGUMENTS))]:
        return None
    return (
        f"Unverified: calls are read as those of {title}, but the chat template writes them otherwise, so the model's "
        "calls will stay text. If the model writes another family's calls, name it in model.family."
    )


def _written_call(text: ModelText) -> tuple[str, bool] | None:
    """Return an answer that calls a tool as the template writes it, and whether its prompt has opened the reasoning.

    None if the template writes nothing of it.
    """
    call, result = _called(text, 1)
    prompt = _render(text, [_QUESTION], _TOOLS)
    written = _render(text, [_QUESTION, call], _TOOLS, is_prompt=False)
    if _NAME not in written[_num_common(prompt, written) :]:  # some write calls only with their results
        written = _render(text, [_QUESTION, call, result], _TOOLS)
    at = _num_common(prompt, written)
    ends = (end for mark in text.end_texts if (end := written.find(mark, at)) >= 0)
    think = text.family.think
    return written[at : min(ends, default=len(written))], bool(think) and written[:at].rstrip().endswith(
        think
    )


def _num_common(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _called(text: ModelText, num_calls: int) -> list[Message]:
    """Return an answer with calls, and their results. The identifiers have the form that Mistral demands."""
    ids = [f"checkid{number:02}" for number in range(num_calls)]
    function = {"name": _NAME, "arguments": _ARGUMENTS}
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    results = [
        {"role": "tool", "tool_call_id": call_id, "name": _NAME, "content": "It is 42."} for call_id in ids
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _render(
    text: ModelText,
    messages: Sequence[Message],
    tools: Sequence[Any] | None = None,
    *,
    is_prompt: bool = True,
) -> str:
    shown = template_messages(messages, has_text_arguments=text.family.has_text_arguments)
    return text.template.render(shown, tools=tools, arguments={}, add_generation_prompt=is_prompt)


if __name__ == "__main__":
    sys.exit(main())
