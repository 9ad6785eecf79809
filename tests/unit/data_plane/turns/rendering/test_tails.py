"""Which turns may be rendered from their last messages alone."""

from pathlib import Path
from typing import Any

import pytest

from seamlessflow.data_plane.turns.rendering.chat_template import template_messages
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from seamlessflow.data_plane.turns.rendering.prompt import (
    Cut,
    PromptRequest,
    TailNotEnough,
    prompt_make,
    request_of_tail,
)
from seamlessflow.data_plane.turns.rendering.tails import MAX_KINDS, tail_messages
from tests.fixtures.family_cases import TOOLS
from tests.fixtures.tiny_text import TEMPLATE, write_tiny_text

CALL = {"id": "call00000", "type": "function", "function": {"name": "calc", "arguments": {"a": 1}}}
CALLED: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call00000", "content": "3"}
ANSWER = {"role": "assistant", "content": "It is 3."}
HISTORY = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 2?"}]
NEXT = {"role": "user", "content": "Sure?"}


def model(folder: Path, template: str = TEMPLATE) -> ModelText:
    return model_text_load(write_tiny_text(folder / "model", template=template))


def tail(text: ModelText, answer: Any, *new: Any, tools: Any = TOOLS, **arguments: Any) -> Any:
    messages = [*HISTORY, answer, *new]
    return tail_messages(text, messages, num_known=len(HISTORY) + 1, tools=tools, arguments=arguments)


def test_results_and_questions_are_rendered_after_the_answer_alone(tmp_path: Path) -> None:
    text = model(tmp_path)
    for answer, *new in ((CALLED, RESULT), (CALLED, RESULT, NEXT), (ANSWER, NEXT), (ANSWER, NEXT, NEXT)):
        shown = tail(text, answer, *new)
        assert shown[1:] == [answer, *new]
        assert shown[0]["role"] == "user"


@pytest.mark.parametrize(
    "rewriting",
    [
        TEMPLATE.replace("{{ message.role }}", "{{ message.role }}{{ messages | length }}"),
        TEMPLATE.replace("{{ message.content }}", "{{ message.content if loop.revindex < 9 }}"),
        TEMPLATE.replace("<|im_end|>\n{% endfor -%}", "<|im_end|>{{ messages[0].content }}{% endfor -%}"),
        TEMPLATE.replace("{% endfor -%}", "{{ raise_exception('long') if loop.index > 9 }}{% endfor -%}"),
    ],
    ids=["counts", "forgets", "repeats the first", "refuses long ones"],
)
def test_a_template_that_looks_at_more_is_given_all_messages(tmp_path: Path, rewriting: str) -> None:
    assert rewriting != TEMPLATE
    text = model(tmp_path, rewriting)
    assert tail(text, CALLED, RESULT) is None
    assert tail(text, ANSWER, NEXT) is None


def test_messages_that_no_golden_conversation_has_are_rendered_whole(tmp_path: Path) -> None:
    text = model(tmp_path)
    assert tail(text, ANSWER, {"role": "system", "content": "Be long."}) is None
    assert tail(text, ANSWER, NEXT, ANSWER) is None
    assert tail(text, CALLED, NEXT) is None
    assert tail(text, CALLED, NEXT, RESULT) is None
    assert tail(text, CALLED, RESULT, tools=None) is None
    assert tail(text, ANSWER | {"thinking": "hm"}, NEXT) is None


TURNS = [(CALLED, RESULT), (CALLED, RESULT, NEXT), (ANSWER, NEXT), (ANSWER, NEXT, NEXT)]


def turn_request(answer: Any, *new: Any) -> PromptRequest:
    """Return the request of a turn whose answer is in the tree, ended by its mark."""
    messages = template_messages([*HISTORY, answer, *new])
    return PromptRequest("", messages, TOOLS, {}, [Cut(len(HISTORY) + 1, "<|im_end|>")], 4096)


@pytest.mark.parametrize("turn", TURNS)
def test_a_tail_sent_alone_gives_the_prompt_that_all_messages_give(
    tmp_path: Path, turn: tuple[Any, ...]
) -> None:
    text, request = model(tmp_path), turn_request(*turn)
    whole = prompt_make(text, request)
    assert whole.is_of_tail
    alone = request_of_tail(request)
    assert len(alone.messages) == len(turn) + 1
    assert prompt_make(text, alone) == whole


def test_a_tail_that_the_template_refuses_is_not_enough(tmp_path: Path) -> None:
    refusing = "{%- if messages[0].role == 'user' %}{{ raise_exception('no system') }}{% endif -%}" + TEMPLATE
    text, request = model(tmp_path, refusing), turn_request(CALLED, RESULT)
    assert not prompt_make(text, request).is_of_tail
    with pytest.raises(TailNotEnough):
        prompt_make(text, request_of_tail(request))


def test_a_tail_that_does_not_continue_its_answer_is_not_enough(tmp_path: Path) -> None:
    rewriting = TEMPLATE.replace("{{ message.content }}", "{{ message.content if loop.last else 'gone' }}")
    text, request = model(tmp_path, rewriting), turn_request(ANSWER, NEXT)
    assert prompt_make(text, request).cut is None
    with pytest.raises(TailNotEnough):
        prompt_make(text, request_of_tail(request))


def test_kinds_that_clients_invent_do_not_pile_up(tmp_path: Path) -> None:
    text = model(tmp_path)
    for number in range(MAX_KINDS + 5):
        tail(text, ANSWER, NEXT, tools=None, number=number)
    assert len(text.proven_tails) == 5
