"""What a rendering adds after an answer: which mark ended it, and which text is the template's own."""

import pytest

from seamlessflow.core.families import ModelFamily
from seamlessflow.data_plane.turns.rendering.continuation import text_added
from seamlessflow.data_plane.turns.rendering.parsers.families import family_get

CHATML = "<|im_end|>"
GLM_ENDS = ("<|endoftext|>", "<|user|>", "<|observation|>")
HARMONY_ENDS = ("<|return|>", "<|call|>")


def added(family: ModelFamily, full: str, known: str, ends: tuple[str, ...], sampled_end: str) -> str | None:
    return text_added(full, known, family=family_get(family), end_texts=ends, sampled_end=sampled_end)


@pytest.mark.parametrize(
    "sampled_end, expected",
    [
        ("<|user|>", "B?<|assistant|>"),
        ("", "<|user|>B?<|assistant|>"),
        ("<|observation|>", "<|user|>B?<|assistant|>"),
        ("<|endoftext|>", "<|user|>B?<|assistant|>"),
    ],
)
def test_the_next_opener_ends_a_turn_of_glm(sampled_end: str, expected: str) -> None:
    known = "<sop><|user|>A?<|assistant|>a"
    full = known + "<|user|>B?<|assistant|>"
    assert added(ModelFamily.GLM, full, known, GLM_ENDS, sampled_end) == expected


@pytest.mark.parametrize("sampled_end, expected", [("<|return|>", "<|start|>"), ("", "<|end|><|start|>")])
def test_harmony_ends_a_past_answer_with_another_mark(sampled_end: str, expected: str) -> None:
    known, full = "<|message|>a<|return|>", "<|message|>a<|end|><|start|>"
    assert added(ModelFamily.GPT_OSS, full, known, HARMONY_ENDS, sampled_end) == expected
    assert added(ModelFamily.HERMES, full, known, HARMONY_ENDS, sampled_end) is None


def test_an_empty_reasoning_block_of_the_last_answer_counts_as_nothing() -> None:
    known = "Q<|im_end|>\n<think>\n\n</think>\n\na<|im_end|>\n"
    full = "Q<|im_end|>\na<|im_end|>\nR<|im_end|>\n<think>\n\n</think>\n\n"
    follow_up = "\nR<|im_end|>\n<think>\n\n</think>\n\n"
    assert added(ModelFamily.HERMES, full, known, (CHATML,), CHATML) == follow_up
    assert added(ModelFamily.HERMES, full, known, (CHATML,), "") == CHATML + follow_up


def test_reasoning_that_the_template_drops_is_not_ignored() -> None:
    known = "Q<|im_end|>\n<think>\nhm\n</think>\n\na<|im_end|>\n"
    assert added(ModelFamily.HERMES, "Q<|im_end|>\na<|im_end|>\nR", known, (CHATML,), CHATML) is None


def test_edited_text_beside_an_empty_block_is_not_continued() -> None:
    known = "Q<|im_end|>\n<think></think>a<|im_end|>\n"
    assert added(ModelFamily.HERMES, "Q<|im_end|>\nb<|im_end|>\nR", known, (CHATML,), CHATML) is None
    assert added(ModelFamily.HERMES, "P<|im_end|>\na<|im_end|>\nR", known, (CHATML,), CHATML) is None
    assert added(ModelFamily.HERMES, "Q<|im_end|>\na", known, (CHATML,), CHATML) is None
