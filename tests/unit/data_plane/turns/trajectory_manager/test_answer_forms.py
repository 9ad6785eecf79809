"""Answers that clients hand back in other words join the tokens that were sampled; what says something else forks."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.trajectory.messages import message_digest
from seamlessflow.core.trajectory.prefix_tree import Drift, ForkCause
from seamlessflow.data_plane.turns.rendering.parsers.families import family_get
from seamlessflow.data_plane.turns.trajectory_manager.answer_forms import AnswerForms
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation, turn_match
from tests.fixtures.answered_turns import tiny_model_text
from tests.fixtures.family_cases import CASES, Case
from tests.fixtures.family_cases import TOOLS as FAMILY_TOOLS
from tests.fixtures.resent_answers import CODE_STOP, TOOLS, Talk, edits, follow_up, smolagents_list

ASKED = {"role": "user", "content": "12+34?"}
END = "<|im_end|>"
REASONING = st.sampled_from(["", "<think>\nhm\n</think>\n\n"])
SAID = st.sampled_from(["", "Let me see.", 'It\'s "46"\\n'])
CALLS = st.lists(
    st.sampled_from(
        [
            '<tool_call>\n{"name": "calc", "arguments": {"a": 12, "b": "it\'s \\n\\u00e9"}}\n</tool_call>',
            '<tool_call>{"name": "calc", "arguments": {}}</tool_call>',
        ]
    ),
    max_size=2,
)


def is_joined(talk: Talk, handed: Any, follow: list[Any] | None = None) -> bool:
    """Return whether a conversation with this answer continues the first sampled answer, tokens and all."""
    plan = talk.plan([ASKED, handed, *(follow_up(handed) if follow is None else follow)])
    is_on_path = plan.parent == 1
    assert not is_on_path or plan.prompt_ids.startswith(talk.tree.path_tokens(1))
    assert plan.drift is (Drift.CLEAN if is_on_path else Drift.FORK)
    return is_on_path


def forms(sampled: str, said: Any) -> Iterator[dict[str, Any]]:
    """Yield what clients write in place of an answer."""
    yield {**said, "name": "helper"}
    yield {"role": "assistant", "content": sampled}
    yield {"role": "assistant", "content": sampled.rpartition("</think>")[2]}
    if calls := said.get("tool_calls"):
        yield {"role": "assistant", "content": None, "tool_calls": calls}
        empty = {"name": "calc", "arguments": ""}
        yield {
            **said,
            "tool_calls": [
                {**call, "function": empty} if call["function"]["arguments"] == "{}" else call
                for call in calls
            ],
        }
        listed = smolagents_list(
            [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]
        )
        parts = [{"type": "text", "text": f"{said['content']}\n{listed}" if said["content"] else listed}]
        yield {"role": "assistant", "content": parts}


@given(REASONING, SAID, CALLS)
def test_an_answer_joins_in_any_form_and_forks_if_it_is_edited(
    reasoning: str, words: str, calls: list[str]
) -> None:
    sampled = reasoning + words + "".join(calls)
    talk = Talk(tiny_model_text())
    said = talk.answer([ASKED], sampled + END)
    for form in (said, *forms(sampled, said)):
        assert is_joined(talk, form), form
        assert is_joined(talk, form, [{"role": "user", "content": "Observation: 46"}]), form
        for edited in edits(form):
            assert not is_joined(talk, edited), edited


@pytest.mark.parametrize("case", [case for case in CASES if case.calls], ids=lambda case: case.title)
def test_calls_written_in_the_format_of_their_family_join(case: Case) -> None:
    text = dataclasses.replace(tiny_model_text(), family=family_get(case.family))
    talk = Talk(text, FAMILY_TOOLS)
    said = talk.answer([ASKED], case.text + END)
    assert len(said["tool_calls"]) == len(case.calls)
    handed = {"role": "assistant", "content": case.text}
    assert is_joined(talk, handed)
    assert not is_joined(talk, {**handed, "content": case.text.replace("calc", "halt")})


def test_a_call_without_its_text_is_told_from_another_by_its_identifier() -> None:
    talk = Talk(tiny_model_text())
    call = '<tool_call>{"name": "calc", "arguments": {"a": 1}}</tool_call>' + END
    answers = [talk.answer([ASKED], "First." + call), talk.answer([ASKED], call)]
    for node, answer in zip((1, 2), answers, strict=True):
        bare = {**answer, "content": None}
        assert talk.plan([ASKED, bare, *follow_up(bare)]).parent == node
    unknown = {**answers[0], "content": None, "tool_calls": [{**answers[0]["tool_calls"][0], "id": "call_9"}]}
    assert talk.plan([ASKED, unknown, *follow_up(unknown)]).parent == 2  # it repeats the answer without text


CODE = 'text = "a < b"\n\nprint(calc(text))'
THOUGHT = f"Thought: it's easy.\n<code>\n{CODE}\n"


def code_agent(said: Any, code: str = CODE, closing: str = CODE_STOP) -> dict[str, Any]:
    """Return an answer as smolagents' CodeAgent hands it back."""
    listed = smolagents_list([("call_2", "python_interpreter", code)])
    text = f"{said['content']}{closing}".strip() + f"\n{listed}"
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def test_code_that_a_client_lists_as_a_call_joins_with_its_stop_string() -> None:
    talk = Talk(tiny_model_text(), tools=None, stop=("Observation:", CODE_STOP))
    said = talk.answer([ASKED], THOUGHT + CODE_STOP + END)
    assert CODE_STOP not in said["content"]
    assert is_joined(talk, said)
    assert is_joined(talk, code_agent(said))
    assert is_joined(talk, {**said, "content": said["content"] + CODE_STOP})
    others = [
        code_agent(said, CODE + "\nhalt()"),
        code_agent(said, "print(calc(text))"),  # a part of the block
        code_agent(said, "text"),
        code_agent(said, " "),
        code_agent(said, closing="</end>"),
        code_agent({"content": said["content"].replace("easy", "hard")}),
        *edits(code_agent(said)),
    ]
    for other in others:
        assert not is_joined(talk, other), other


def test_a_stop_string_that_was_not_sampled_is_another_message() -> None:
    talk = Talk(tiny_model_text(), tools=None, stop=(CODE_STOP,))
    said = talk.answer([ASKED], THOUGHT + END)
    assert not is_joined(talk, code_agent(said))
    assert is_joined(talk, code_agent(said, closing=""))


def test_a_conversation_with_forms_of_answers_goes_on_joining() -> None:
    talk = Talk(tiny_model_text(), tools=None, stop=(CODE_STOP,))
    messages: list[Any] = [ASKED]
    for number in range(4):
        plan = talk.plan(messages)
        assert plan.drift is Drift.CLEAN
        assert plan.parent == (2 * number - 1 if number else None)
        said = talk.answer(messages, THOUGHT + str(number) + CODE_STOP)
        messages += [
            code_agent(said, CODE + "\n" + str(number)),
            {"role": "user", "content": "Observation:\n46"},
        ]
    edited = [*messages[:3], {"role": "assistant", "content": "No."}, *messages[4:]]
    assert talk.plan(edited).cause is ForkCause.HISTORY


def test_a_form_of_another_answer_in_a_prompt_is_found_again() -> None:
    """The agent puts a form of a known answer where none was sampled; the next turn finds that prompt by its words."""
    talk = Talk(tiny_model_text(), tools=None, stop=(CODE_STOP,))
    said = talk.answer([ASKED], THOUGHT + CODE_STOP)
    elsewhere = [{"role": "user", "content": "?"}, code_agent(said), {"role": "user", "content": "Go on"}]
    answer = talk.answer(elsewhere, "Yes" + END)
    plan = talk.plan([*elsewhere, answer, ASKED])
    assert (plan.drift, plan.parent) == (Drift.CLEAN, 3)


def test_results_behind_calls_in_text_reach_the_template_with_calls() -> None:
    text = tiny_model_text()
    talk = Talk(text)
    calls = '<tool_call>{"name": "calc", "arguments": {"a": 1}}</tool_call>' * 2
    talk.answer([ASKED], calls + END)
    handed = {"role": "assistant", "content": calls}
    results = [{"role": "tool", "tool_call_id": name, "content": "46"} for name in "ab"]

    def shown(*follow: Any) -> Any:
        return turn_match(talk.tree, Conversation([ASKED, handed, *follow], TOOLS, {}), text).shown[1]

    assert [call["id"] for call in shown(*results)["tool_calls"]] == ["a", "b"]
    assert shown(*results)["content"] == ""
    assert shown(results[0]) == shown(ASKED) == handed


@pytest.mark.parametrize(
    "listed",
    [
        "[{'id': 'c', 'type': 'function', 'function': {'name': 'calc', 'arguments': {1j: {2}}}}]",
        "[{'id': 'c', 'function': {'name': 'calc', 'arguments': {'a': " + "9" * 5000 + "}}}]",
        "[{'id': 'c', 'function': {'name': 'calc', 'arguments': {'a': '\\ud800'}}}]",
        "[{'id': 'c', 'function': {'name': 'calc', 'arguments': {'a': open('x')}}}]",
        "[" * 10_000,
        "-" * 100_000 + "1",
        "[{'id': 5}]",
        "[1]",
        "{}",
        "",
    ],
    ids=lambda listed: listed[:60],
)
def test_a_list_that_is_none_of_calls_is_text(listed: str) -> None:
    talk = Talk(tiny_model_text())
    talk.answer([ASKED], "Yes." + END)
    assert not is_joined(talk, {"role": "assistant", "content": f"Yes.\nCalling tools:\n{listed}"})


def test_a_request_reads_a_bounded_amount_of_text_and_remembers_what_it_found() -> None:
    talk = Talk(tiny_model_text(), tools=None, stop=(CODE_STOP,))
    said = talk.answer([ASKED], THOUGHT + CODE_STOP)
    handed = code_agent(said)
    known, digests = message_digest(said), (message_digest(handed),)

    def found(num_left: int) -> bytes:
        forms = AnswerForms(talk.tree, talk.text, None, talk.stop, num_left)
        return forms.recorded_digests([handed], digests)[0]

    assert found(10) == digests[0]
    assert found(1000) == known
    assert found(10) == known
