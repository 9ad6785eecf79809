"""Turns join under the chat templates of real models: the sampled tokens stay, and the template's own text follows."""

import copy
from typing import Any

import pytest

from seamlessflow.core.trajectory.messages import message_digests
from seamlessflow.core.trajectory.prefix_tree import Drift, Node, NodeKind, PrefixTree
from seamlessflow.data_plane.turns.rendering import prompt
from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText
from seamlessflow.data_plane.turns.rendering.model_text import ModelText
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation, TurnPlan
from tests.fixtures.family_cases import TOOLS
from tests.fixtures.planned_turns import plan_turn
from tests.fixtures.real_templates import QUESTION, REAL_TEMPLATES, RESULT, RealTemplate

DESCRIBED_TOOLS = copy.deepcopy(TOOLS)
DESCRIBED_TOOLS[1]["function"]["description"] = "Tell the time."  # gpt-oss' template demands it
# Templates that drop the reasoning of earlier answers after a question.
REWRITING = {"qwen3", "qwen3_5_think", "glm4moe", "gptoss"}
templates = pytest.mark.parametrize("template", REAL_TEMPLATES, ids=lambda template: template.name)


class Session:
    """An agent's conversation, and the tree that its turns make."""

    def __init__(self, text: ModelText, *, keeps_reasoning: bool, retains_reasoning: bool = False) -> None:
        self.text, self.tree = text, PrefixTree()
        self._keeps_reasoning, self._retains_reasoning = keeps_reasoning, retains_reasoning
        self.messages: list[Any] = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "1 < 2?"},
        ]

    def turn(self, answer: str) -> TurnPlan:
        """Plan a turn, answer it with a text, and write what the agent says next."""
        plan = plan_turn(
            self.tree,
            self.text,
            Conversation(list(self.messages), DESCRIBED_TOOLS, {}),
            retains_reasoning=self._retains_reasoning,
        )
        self._add(plan.parent, plan.kind, plan.new_ids, plan.digests, plan.context)
        message = self._message(answer, starts_in_reasoning=plan.starts_in_reasoning)
        prompt = len(self.tree.nodes) - 1
        self._add(prompt, NodeKind.SAMPLED, self.text.encode(answer), message_digests([message]))
        called = message.get("tool_calls")
        follow_up = {"role": "tool", "tool_call_id": "c1", "content": RESULT}
        self.messages += [message, follow_up if called else {"role": "user", "content": QUESTION}]
        return plan

    def _add(
        self, parent: int | None, kind: NodeKind, ids: bytes, digests: Any, context: bytes = b""
    ) -> None:
        self.tree.add(Node(len(self.tree.nodes), parent, kind, ids, digests, 0, context))

    def _message(self, answer: str, *, starts_in_reasoning: bool) -> dict[str, Any]:
        parser = AnswerText(
            self.text, stop=(), tools=DESCRIBED_TOOLS, starts_in_reasoning=starts_in_reasoning
        )
        parser.push(self.text.encode(answer))
        parser.finish()
        message: dict[str, Any] = {"role": "assistant", "content": parser.parsed.content}
        if self._keeps_reasoning and parser.parsed.reasoning:
            message["reasoning_content"] = parser.parsed.reasoning
        if parser.parsed.tool_calls:
            message["tool_calls"] = [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in parser.parsed.tool_calls
            ]
        return message


@templates
def test_tool_calls_finals_and_cut_answers_join_without_reasoning(template: RealTemplate) -> None:
    text = template.load()
    assert text.family.name is template.family
    session = Session(text, keeps_reasoning=False)
    call, final = template.call + template.call_end, template.final + template.final_end
    path = session.turn(call).prompt_ids + text.encode(call)
    for answer, follow_up in (
        (call, template.after_call),
        (final, template.after_call),
        (template.final, template.after_final),
        (call, template.after_cut),
        (final, template.after_call),
    ):
        plan = session.turn(answer)
        assert plan.drift is Drift.CLEAN, plan.cause
        assert plan.prompt_ids == path + text.encode(follow_up)
        path = plan.prompt_ids + text.encode(answer)


@templates
def test_a_tool_loop_joins_with_reasoning(template: RealTemplate) -> None:
    text = template.load()
    session = Session(text, keeps_reasoning=True)
    call = template.call + template.call_end
    path = session.turn(call).prompt_ids + text.encode(call)
    for _ in range(3):
        plan = session.turn(call)
        assert plan.prompt_ids == path + text.encode(template.after_call)
        path = plan.prompt_ids + text.encode(call)


@templates
def test_reasoning_that_the_agent_hands_back_stays_after_a_question_if_the_job_retains_it(
    template: RealTemplate,
) -> None:
    text = template.load()
    final = template.final + template.final_end
    session = Session(text, keeps_reasoning=True)
    session.turn(final)
    is_rewriting = template.name in REWRITING
    assert session.turn(final).drift is (Drift.REALIGN if is_rewriting else Drift.CLEAN)

    session = Session(text, keeps_reasoning=True, retains_reasoning=True)
    path = session.turn(final).prompt_ids + text.encode(final)
    for _ in range(3):
        plan = session.turn(final)
        assert plan.drift is Drift.CLEAN
        assert plan.prompt_ids == path + text.encode(template.after_final)
        path = plan.prompt_ids + text.encode(final)


@templates
@pytest.mark.parametrize("keeps_reasoning", [False, True])
def test_a_turn_rendered_from_its_last_messages_equals_one_rendered_whole(
    template: RealTemplate, keeps_reasoning: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = template.load()
    call, final = template.call + template.call_end, template.final + template.final_end
    answers = (call, call, final, template.final, call, call, final, final)
    session = Session(text, keeps_reasoning=keeps_reasoning)
    short = [session.turn(answer) for answer in answers]
    refused = {kind for kind, is_proven in text.proven_tails.items() if not is_proven}
    is_rewriting = keeps_reasoning and template.name in REWRITING
    assert {(kind.num_calls, kind.has_question, kind.has_reasoning) for kind in refused} == (
        {(0, True, True)} if is_rewriting else set()
    )
    assert any(text.proven_tails.values())
    monkeypatch.setattr(prompt, "tail_messages", lambda *arguments, **named: None)
    session = Session(text, keeps_reasoning=keeps_reasoning)
    assert [session.turn(answer) for answer in answers] == short


def test_an_answer_that_ends_with_another_mark_than_the_next_turn_opens_with_keeps_it() -> None:
    glm = next(template for template in REAL_TEMPLATES if template.family.value == "glm")
    text = glm.load()
    session = Session(text, keeps_reasoning=False)
    path = session.turn(glm.call + glm.final_end).prompt_ids + text.encode(glm.call + glm.final_end)
    plan = session.turn(glm.final + glm.final_end)
    assert plan.drift is Drift.CLEAN
    assert plan.prompt_ids == path + text.encode(glm.call_end + glm.after_call)
