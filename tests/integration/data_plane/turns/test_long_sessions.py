"""A session of 60 turns and more than 64k tokens: a turn costs what it adds, not what came before it."""

import copy
import functools
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from seamlessflow.core.trajectory.messages import message_digests
from seamlessflow.core.trajectory.prefix_tree import Drift, Node, NodeKind, PrefixTree
from seamlessflow.data_plane.turns.rendering.model_text import ModelText
from seamlessflow.data_plane.turns.rendering.prompt import PromptRequest, prompt_make
from seamlessflow.data_plane.turns.trajectory_manager.plan import (
    Conversation,
    TurnPlan,
    turn_match,
    turn_plan,
)
from tests.fixtures.family_cases import TOOLS
from tests.fixtures.planned_turns import NO_LIMIT
from tests.fixtures.real_templates import ARGUMENTS, REAL_TEMPLATES, RealTemplate

NUM_TURNS, EARLY_TURN = 60, 5
NUM_TOKENS = 64_000
MAX_RATIO = 2.0
NUM_TRIES = 15
RESULT = "total 12 of /usr/lib: file read, 34 lines changed; " * 90 + "done"
templates = pytest.mark.parametrize("template", REAL_TEMPLATES, ids=lambda template: template.name)


def planned(tree: PrefixTree, text: ModelText, messages: list[Any]) -> TurnPlan:
    """Plan a turn as the gateway does, with the request on its way to a helper process and back."""
    matched = turn_match(tree, Conversation(messages, TOOLS[:1], {}), text)
    sent = msgspec.json.encode(matched.request(text, model="", max_tokens=NO_LIMIT))
    return turn_plan(tree, matched, prompt_make(text, msgspec.json.decode(sent, type=PromptRequest)))


def answered(tree: PrefixTree, text: ModelText, messages: list[Any], template: RealTemplate) -> list[Any]:
    """Add a turn that calls a tool; return the conversation with the tool's result."""
    plan, number = planned(tree, text, messages), len(messages)
    assert plan.drift is Drift.CLEAN
    tree.add(Node(len(tree.nodes), plan.parent, plan.kind, plan.new_ids, plan.digests, 0, plan.context))
    function = {"name": "calc", "arguments": ARGUMENTS}
    call = {"id": f"call{number:05}", "type": "function", "function": function}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    ids = text.encode(template.call + template.call_end)
    tree.add(Node(len(tree.nodes), len(tree.nodes) - 1, NodeKind.SAMPLED, ids, message_digests([said]), 0))
    return [*messages, said, {"role": "tool", "tool_call_id": call["id"], "content": RESULT}]


def cpu_s(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def long_session(text: ModelText, template: RealTemplate) -> list[tuple[PrefixTree, list[Any]]]:
    """Return the tree and the conversation before the early turn and before the last one."""
    tree, messages, early = PrefixTree(), [{"role": "user", "content": "1 < 2?"}], PrefixTree()
    for turn in range(1, NUM_TURNS):
        if turn == EARLY_TURN:
            early, early_messages = copy.deepcopy(tree), messages
        messages = answered(tree, text, messages, template)
    return [(early, early_messages), (tree, messages)]


@templates
def test_turn_60_renders_and_encodes_only_what_is_new(
    template: RealTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = template.load()
    _, (tree, messages) = long_session(text, template)
    rendered: list[int] = []
    render = text.template.render

    def counted(given: Any, **options: Any) -> str:
        rendered.append(len(given))
        return render(given, **options)

    monkeypatch.setattr(text.template, "render", counted)
    plan = planned(tree, text, messages)
    assert plan.num_prompt_tokens > NUM_TOKENS
    assert plan.new_ids == text.encode(template.after_call.replace("3.0!", RESULT))
    assert rendered == [3, 2]  # a message in place of all others, the last answer, and the result


def test_turn_60_costs_at_most_twice_as_much_as_turn_5() -> None:
    template = REAL_TEMPLATES[1]
    text = template.load()
    early, late = long_session(text, template)
    work = [functools.partial(planned, tree, text, messages) for tree, messages in (early, late)]
    spent = [[cpu_s(each) for each in work] for _ in range(NUM_TRIES)]
    early_s, late_s = map(min, zip(*spent, strict=True))
    assert late_s <= MAX_RATIO * early_s, (early_s, late_s)
