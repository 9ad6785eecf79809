"""Answers of at most one call: the recorded tokens end with the one that completes it, however the pieces come."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seamlessflow.core.families import ModelFamily
from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from seamlessflow.data_plane.turns.rendering.prompt import PromptRequest, prompt_make
from tests.fixtures.tiny_text import TEMPLATE, write_tiny_text

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
HERMES = '<tool_call>{"name": "look", "arguments": {"a": "<tool_call>"}}</tool_call>'
LLAMA = '{"name": "look", "parameters": {"a": "; {"}}'
ANSWERS = [
    (ModelFamily.HERMES, "Well.\n", HERMES, "\n" + HERMES),
    (ModelFamily.LLAMA3, "", LLAMA, "; " + LLAMA),
    (ModelFamily.MISTRAL, "Well.", '[TOOL_CALLS]look[ARGS]{"a": "}"}', "[TOOL_CALLS]look[ARGS]{}"),
    (
        ModelFamily.MISTRAL,
        "",
        '[TOOL_CALLS][{"name": "look", "arguments": {}}',
        ', {"name": "look", "arguments": {}}]',
    ),
    (
        ModelFamily.QWEN3_CODER,
        "",
        "<tool_call>\n<function=look>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        "\nand then some",
    ),
    (
        ModelFamily.GPT_OSS,
        "",
        "<|channel|>commentary to=functions.look<|message|>{}<|call|>",
        "<|start|>assistant<|channel|>final<|message|>Well.",
    ),
]
CUTS = st.lists(st.integers(1, 9), max_size=40)


def text_of(folder: Path, family: ModelFamily, template: str = TEMPLATE) -> ModelText:
    return model_text_load(write_tiny_text(folder / family, template=template), family)


def answer_of(text: ModelText, ids: list[int], cuts: list[int], *, has_one_call: bool) -> AnswerText:
    answer = AnswerText(text, stop=[], tools=TOOLS, starts_in_reasoning=False, has_one_call=has_one_call)
    at = 0
    for cut in [*cuts, len(ids)]:
        answer.push(np.asarray(ids[at : at + cut], dtype="<i4").tobytes())
        at += cut
    answer.finish()
    return answer


@pytest.mark.parametrize("family,before,call,behind", ANSWERS)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cuts=CUTS)
def test_an_answer_ends_with_its_only_call(
    tmp_path: Path, family: ModelFamily, before: str, call: str, behind: str, cuts: list[int]
) -> None:
    text = text_of(tmp_path, family)
    ids = text.tokenizer.encode(before + call + behind, add_special_tokens=False).ids
    answer = answer_of(text, ids, cuts, has_one_call=True)
    assert answer.num_kept_tokens is not None
    assert [found.name for found in answer.parsed.tool_calls] == ["look"]
    assert answer.parsed.content.strip() == before.strip()
    kept = ids[: answer.num_kept_tokens]
    assert text.decode(kept).startswith(before + call)
    assert not text.decode(kept[:-1]).startswith(before + call)
    whole = answer_of(text, ids, cuts, has_one_call=False)
    assert whole.num_kept_tokens is None


@pytest.mark.parametrize("limit,has_one_call", [(1, True), (2, False), (0, False)])
def test_no_more_calls_are_offered_than_the_template_renders(
    tmp_path: Path, limit: int, has_one_call: bool
) -> None:
    refusal = (
        "{%- for message in messages %}{% if message.tool_calls and message.tool_calls | length > "
        + str(limit)
        + " %}{{ raise_exception('only supports single tool-calls at once!') }}{% endif %}{% endfor %}"
    )
    text = text_of(tmp_path, ModelFamily.LLAMA3, refusal + TEMPLATE)
    request = PromptRequest(
        "", messages=[{"role": "user", "content": "hi"}], tools=TOOLS, arguments={}, cuts=(), max_tokens=999
    )
    assert prompt_make(text, request).has_one_call is has_one_call
