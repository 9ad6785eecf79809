"""Completions: what is read, what is refused by name, and what the chunks say."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from seamlessflow.core.trajectory.flatten import flatten
from seamlessflow.core.trajectory.messages import message_digests
from seamlessflow.core.trajectory.prefix_tree import Drift, ForkCause, Node, NodeKind, PrefixTree
from seamlessflow.data_plane.dialects.completions.reply import CompletionReply, _by_name
from seamlessflow.data_plane.dialects.completions.request import (
    DEFAULT_MAX_TOKENS,
    CompletionOptions,
    CompletionRequest,
    completion_request_parse,
)
from seamlessflow.data_plane.dialects.likeliest import ShownToken
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.trajectory_manager.plan import RawPrompt, TurnPlan, raw_plan
from tests.fixtures.answered_turns import CREATED_S, answer_stream, tiny_model_text, turn_make
from tests.fixtures.random_answers import ANSWERS, CUTS

ALL = CompletionOptions(has_usage=True, has_logprobs=True)


def parsed(**fields: Any) -> CompletionRequest:
    return completion_request_parse(json.dumps({"prompt": "4+6=", **fields}).encode(), temperature=1.0)


def ids(*numbers: int) -> bytes:
    return np.asarray(numbers, dtype="<i4").tobytes()


@pytest.mark.parametrize(
    "prompt,expected",
    [
        ("a", RawPrompt("a")),
        (["a"], RawPrompt("a")),
        ([5, 6], RawPrompt(token_ids=ids(5, 6))),
        ([[5, 6]], RawPrompt(token_ids=ids(5, 6))),
    ],
)
def test_a_prompt_is_one_text_or_token_ids(prompt: Any, expected: RawPrompt) -> None:
    assert parsed(prompt=prompt).conversation == expected


def test_the_length_of_an_answer_is_bounded_as_in_the_real_api() -> None:
    assert (parsed().max_tokens, parsed(max_tokens=3).max_tokens) == (DEFAULT_MAX_TOKENS, 3)


def test_seeds_are_recorded_and_unknown_fields_named() -> None:
    request = parsed(seed=7, temperature=0.5, user="u", stream_options={"include_obfuscation": True})

    assert request.flags == {"seed": 7, "overridden": {"temperature": 0.5}}
    assert request.ignored == ("user", "stream_options.include_obfuscation")


@pytest.mark.parametrize(
    "fields,param",
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [[1], [2]]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        parsed(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)


def take(tree: PrefixTree, prompt: bytes, answer: bytes) -> TurnPlan:
    """Plan a turn on token ids and add its nodes."""
    plan = raw_plan(tree, RawPrompt(token_ids=prompt), prompt, tiny_model_text())
    assert plan.prompt_ids == prompt == tree.path_tokens(plan.parent) + plan.new_ids
    node = tree.prompt_child(plan.parent, plan.digests, plan.context)
    if node is None:
        node = Node(len(tree.nodes), plan.parent, plan.kind, plan.new_ids, plan.digests, 0, plan.context)
        tree.add(node)
    said = message_digests([{"role": "assistant", "content": "a"}])
    tree.add(
        Node(
            len(tree.nodes),
            node.index,
            NodeKind.SAMPLED,
            answer,
            said,
            0,
            logprobs=bytes(len(answer)),
            spans=(0, 1),
        )
    )
    return plan


def test_equal_prompts_share_a_root_and_others_begin_one() -> None:
    tree = PrefixTree()
    first = take(tree, ids(5, 6), ids(9))
    again = take(tree, ids(5, 6), ids(8))
    other = take(tree, ids(5), ids(9))

    assert (first.kind, first.drift) == (NodeKind.ROOT, Drift.CLEAN)
    assert (again.cause, other.cause) == (ForkCause.REPEAT, ForkCause.NEW_ROOT)


def test_a_prompt_joins_the_longest_path_that_it_begins_with() -> None:
    tree = PrefixTree()
    take(tree, ids(5, 6), ids(7, 8))
    longer = take(tree, ids(5, 6, 7, 8, 9), ids(10))
    longest = take(tree, ids(5, 6, 7, 8, 9, 10, 11), ids(12))
    branched = take(tree, ids(5, 6, 7, 8, 4), ids(10))
    apart = take(tree, ids(5, 6, 7, 4), ids(10))

    assert [plan.parent for plan in (longer, longest, branched, apart)] == [1, 3, 1, None]
    assert (longer.drift, longest.drift) == (Drift.CLEAN, Drift.CLEAN)
    assert (branched.cause, apart.cause) == (ForkCause.HISTORY, ForkCause.NEW_ROOT)


def test_an_answer_that_was_cut_short_goes_on_without_new_tokens() -> None:
    tree = PrefixTree()
    take(tree, ids(5, 6), ids(7, 8))
    plan = take(tree, ids(5, 6, 7, 8), ids(9))

    assert (plan.parent, plan.new_ids, plan.drift) == (1, b"", Drift.CLEAN)
    assert flatten([tree.nodes]).layout.num_samples == 1


def test_a_prompt_of_a_chat_is_never_joined_by_tokens() -> None:
    tree = PrefixTree([Node(0, None, NodeKind.ROOT, ids(5), (b"u",), 1, context=b"tools")], {None: [0]})
    tree.add(Node(1, 0, NodeKind.SAMPLED, ids(6), (b"a",), 2))

    assert take(tree, ids(5, 6, 7), ids(9)).parent is None


@given(ANSWERS, CUTS)
def test_text_is_passed_on_as_it_is_however_it_is_cut(answer: str, cuts: list[int]) -> None:
    turn = turn_make(tools=None, is_plain=True, num_top=3)
    stream = answer_stream(
        turn, CompletionReply(turn, ALL, created_s=CREATED_S), answer + "<|im_end|>", cuts=cuts
    )
    *chunks, done = [raw.removeprefix("data: ") for raw in stream.decode().removesuffix("\n\n").split("\n\n")]
    (whole,) = json.loads(CompletionReply(turn, ALL, created_s=CREATED_S).whole())["choices"]
    bodies = [json.loads(chunk) for chunk in chunks]
    choices = [choice for body in bodies for choice in body["choices"]]

    assert done == "[DONE]"
    assert "".join(choice["text"] for choice in choices) == whole["text"] == answer
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert bodies[-1]["usage"]["completion_tokens"] == turn.choices[0].progress.num_tokens
    for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        streamed = [entry for choice in choices for entry in choice["logprobs"][field]]
        assert streamed == whole["logprobs"][field]
        assert len(streamed) == turn.choices[0].progress.num_tokens
    second = tiny_model_text().decode([8])
    assert all(
        tops == {token: 0, second: -2} for token, tops in zip(*_tops(whole), strict=True) if token != second
    )


def _tops(choice: dict[str, Any]) -> tuple[list[str], list[dict[str, float]]]:
    return choice["logprobs"]["tokens"], choice["logprobs"]["top_logprobs"]


def test_marks_of_reasoning_and_tools_stay_in_the_text() -> None:
    turn = turn_make(tools=None, is_plain=True)
    answer_stream(turn, CompletionReply(turn, ALL, created_s=CREATED_S), "<think>a</think><tool_call>")

    assert tiny_model_text() is turn.session.job.text
    assert turn.choices[0].message()["content"] == "<think>a</think><tool_call>"


def test_likely_tokens_of_equal_text_are_told_apart() -> None:
    lead, tail = ShownToken(1, "\ufffd", b"\xf0", -1.0), ShownToken(2, "\ufffd", b"\x9f", -2.0)
    same, other = ShownToken(3, "a", b"a", -3.0), ShownToken(4, "a", b"a", -4.0)
    assert _by_name([lead, tail, same, other]) == {
        "bytes:\\xf0": -1.0,
        "bytes:\\x9f": -2.0,
        "a": -3.0,
        "token_id:4": -4.0,
    }
