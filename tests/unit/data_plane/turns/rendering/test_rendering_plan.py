"""How a request joins its tree: which tokens are new, which are verified, and why a request forks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamlessflow.core.trajectory.messages import message_digests
from seamlessflow.core.trajectory.prefix_tree import Drift, ForkCause, Node, NodeKind, PrefixTree
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation, TurnPlan
from tests.fixtures.planned_turns import plan_turn
from tests.fixtures.tiny_text import TEMPLATE, write_tiny_text

STRIPPING = TEMPLATE.replace("{{ message.content }}", "{{ message.content if loop.last else 'gone' }}")


@pytest.fixture
def text(tmp_path: Path) -> ModelText:
    return model_text_load(write_tiny_text(tmp_path / "model"))


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def system(content: str) -> dict[str, Any]:
    return {"role": "system", "content": content}


def take(
    tree: PrefixTree, text: ModelText, messages: list[Any], answer: str, *, tools: Any = None
) -> TurnPlan:
    """Plan a turn and add its nodes; returns the plan. `answer` is what the policy samples."""
    plan = plan_turn(tree, text, Conversation(messages, tools, {}))
    prompt = tree.prompt_child(plan.parent, plan.digests, plan.context)
    if prompt is None:
        prompt = Node(len(tree.nodes), plan.parent, plan.kind, plan.new_ids, plan.digests, 0, plan.context)
        tree.add(prompt)
    said = {"role": "assistant", "content": text.decode(ids(text.encode(answer)))}
    tree.add(
        Node(len(tree.nodes), prompt.index, NodeKind.SAMPLED, text.encode(answer), message_digests([said]), 0)
    )
    messages.append(said)
    return plan


def ids(packed: bytes) -> list[int]:
    tokens: list[int] = np.frombuffer(packed, dtype="<i4").tolist()
    return tokens


def test_a_clean_turn_adds_only_what_is_new_and_equals_the_whole_rendering(text: ModelText) -> None:
    tree, messages = PrefixTree(), [user("12+34?")]
    take(tree, text, messages, "46<|im_end|>")
    messages.append(user("Sure?"))
    plan = take(tree, text, messages, "Yes<|im_end|>")
    assert (plan.drift, plan.kind, plan.parent) == (Drift.CLEAN, NodeKind.PROMPT, 1)
    whole = text.template.render(messages[:-1], tools=None, arguments={}, add_generation_prompt=True)
    assert plan.prompt_ids == text.encode(whole)
    assert text.tokenizer.decode(ids(plan.new_ids), skip_special_tokens=False).startswith(
        "\n<|im_start|>user"
    )


def test_a_plan_tells_how_much_of_the_prompt_the_tree_had(text: ModelText) -> None:
    tree, messages = PrefixTree(), [user("12+34?")]
    assert take(tree, text, messages, "46<|im_end|>").num_cached_tokens == 0
    messages.append(user("Sure?"))
    num_path_tokens = len(tree.path_tokens(1)) // 4
    plan = take(tree, text, messages, "Yes<|im_end|>")
    assert plan.num_cached_tokens == num_path_tokens < plan.num_prompt_tokens
    repeated = take(tree, text, messages[:-1], "No<|im_end|>")
    assert repeated.num_cached_tokens + 1 == repeated.num_prompt_tokens == plan.num_prompt_tokens


def test_an_answer_cut_by_length_gets_its_end_of_turn_from_the_next_request(text: ModelText) -> None:
    tree, messages = PrefixTree(), [user("12+34?")]
    take(tree, text, messages, "4")
    messages.append(user("Go on"))
    plan = take(tree, text, messages, "6<|im_end|>")
    shown = text.tokenizer.decode(ids(plan.new_ids), skip_special_tokens=False)
    assert shown.startswith("<|im_end|>\n<|im_start|>user\nGo on")
    assert plan.drift is Drift.CLEAN


def test_sampled_tokens_are_never_tokenised_again(text: ModelText) -> None:
    tree, messages = PrefixTree(), [user("?")]
    plan = plan_turn(tree, text, Conversation(messages, None, {}))
    tree.add(Node(0, None, NodeKind.ROOT, plan.new_ids, plan.digests, 0, plan.context))
    spelled = b"".join(text.encode(letter) for letter in "answer") + text.encode("<|im_end|>")
    said = {"role": "assistant", "content": "answer"}
    tree.add(Node(1, 0, NodeKind.SAMPLED, spelled, message_digests([said]), 0))
    again = plan_turn(tree, text, Conversation([*messages, said, user("!")], None, {}))
    assert again.prompt_ids.startswith(plan.new_ids + spelled)
    assert spelled != text.encode("answer<|im_end|>")


def test_edited_repeated_and_retooled_requests_fork_with_their_cause(text: ModelText) -> None:
    tree, messages = PrefixTree(), [user("12+34?")]
    take(tree, text, messages, "46<|im_end|>")
    take(tree, text, [*messages, user("Sure?")], "Yes<|im_end|>")
    edited = take(tree, text, [*messages, user("Really?")], "Yes<|im_end|>")
    assert (edited.drift, edited.cause, edited.parent) == (Drift.FORK, ForkCause.HISTORY, 1)
    repeated = take(tree, text, [user("12+34?")], "47<|im_end|>")
    assert (repeated.drift, repeated.cause) == (Drift.FORK, ForkCause.REPEAT)
    known = {"role": "assistant", "content": "47"}
    longer = [user("12+34?"), known, user("Sure?")]
    retooled = take(tree, text, longer, "48<|im_end|>", tools=[{"type": "function"}])
    assert (retooled.drift, retooled.cause) == (Drift.FORK, ForkCause.CONTEXT)
    dropped = take(tree, text, longer[1:], "48<|im_end|>")
    assert (dropped.drift, dropped.cause) == (Drift.FORK, ForkCause.HISTORY)


@pytest.mark.parametrize(
    "beside,tools",
    [
        ([user("Find a title: 12+34?")], None),  # other words
        (
            [user("12+34?")],
            [{"type": "function"}],
        ),  # the same words with tools, as after a request for a title
        ([system("You make titles."), user("12+34?")], None),
        ([system("You check."), user("46 is right?")], [{"type": "function"}]),
    ],
)
def test_a_conversation_beside_another_begins_a_root_of_its_own(
    text: ModelText, beside: list[dict[str, Any]], tools: list[Any] | None
) -> None:
    tree = PrefixTree()
    take(tree, text, [user("12+34?")], "46<|im_end|>")
    take(tree, text, [system("You add."), user("12+34?")], "46<|im_end|>")
    plan = take(tree, text, beside, "Yes<|im_end|>", tools=tools)
    assert (plan.parent, plan.cause) == (None, ForkCause.NEW_ROOT)


def test_a_changed_system_prompt_is_a_cause_of_its_own(text: ModelText) -> None:
    tree = PrefixTree()
    take(tree, text, [system("Be terse."), user("12+34?")], "46<|im_end|>")

    resumed = [system("Be kind."), user("12+34?"), {"role": "assistant", "content": "46"}, user("Sure?")]
    assert take(tree, text, resumed, "Yes<|im_end|>").cause is ForkCause.SYSTEM
    elsewhere = take(tree, text, [system("Be kind."), user("56+78?")], "134<|im_end|>")
    assert elsewhere.cause is ForkCause.NEW_ROOT
    edited = [system("Be terse."), user("12+34?"), {"role": "assistant", "content": "47"}, user("Sure?")]
    assert take(tree, text, edited, "Yes<|im_end|>").cause is ForkCause.HISTORY


def test_dropped_reasoning_joins_and_edited_reasoning_forks(text: ModelText) -> None:
    tree, messages = PrefixTree(), [user("12+34?")]
    take(tree, text, messages, "<think>hm</think>46<|im_end|>")
    answer = {"role": "assistant", "content": "46"}
    for kept in (answer, {**answer, "reasoning_content": "hm"}, {**answer, "reasoning_content": ""}):
        assert plan_turn(tree, text, Conversation([messages[0], kept, user("Sure?")], None, {})).parent == 1
    edited = [messages[0], {**answer, "reasoning_content": "ah"}, user("Sure?")]
    plan = take(tree, text, edited, "Yes<|im_end|>")
    assert (plan.drift, plan.cause, plan.parent) == (Drift.FORK, ForkCause.HISTORY, None)
    again = plan_turn(tree, text, Conversation([*edited, user("Really?")], None, {}))
    assert (again.drift, again.parent) == (Drift.CLEAN, 3)


def test_a_later_answer_keeps_the_reasoning_that_the_client_wrote(tmp_path: Path) -> None:
    shown = TEMPLATE.replace("{{ message.content }}", "{{ message.reasoning_content }}{{ message.content }}")
    text = model_text_load(write_tiny_text(tmp_path / "reasoning", template=shown))
    tree, messages = PrefixTree(), [user("12+34?")]
    take(tree, text, messages, "<think>hm</think>46<|im_end|>")
    edited = {"role": "assistant", "content": "Yes", "reasoning_content": "Rather"}
    conversation = Conversation([*messages, user("Sure?"), edited, user("Really?")], None, {})
    plan = plan_turn(tree, text, conversation, retains_reasoning=True)
    assert plan.parent == 1
    assert "RatherYes" in text.decode(ids(plan.new_ids))


def test_a_template_that_rewrites_history_realigns(tmp_path: Path) -> None:
    text = model_text_load(write_tiny_text(tmp_path / "stripping", template=STRIPPING))
    tree, messages = PrefixTree(), [user("12+34?")]
    take(tree, text, messages, "46<|im_end|>")
    messages.append(user("Sure?"))
    plan = take(tree, text, messages, "Yes<|im_end|>")
    assert (plan.drift, plan.cause, plan.parent) == (Drift.REALIGN, ForkCause.TEMPLATE, None)
    whole = text.template.render(messages[:-1], tools=None, arguments={}, add_generation_prompt=True)
    assert plan.prompt_ids == text.encode(whole)
