"""Trees of conversations: matching, forks, linearisation. Conversations are random walks over a few
messages."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.trajectory.flatten import flatten, unroll
from seamlessflow.core.trajectory.messages import is_same_message, message_digest, message_digests
from seamlessflow.core.trajectory.prefix_tree import ForkCause, Node, NodeKind, PrefixTree

CONTEXT = b"tools"
TURNS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=12)


def add(
    tree: PrefixTree,
    parent: int | None,
    kind: NodeKind,
    tokens: Sequence[int],
    digests: tuple[bytes, ...],
    **fields: Any,
) -> Node:
    above = tree.nodes[parent].num_path_tokens if parent is not None else 0
    sampled = kind is NodeKind.SAMPLED
    node = Node(
        index=len(tree.nodes),
        parent=parent,
        kind=kind,
        token_ids=np.asarray(tokens, dtype="<i4").tobytes(),
        digests=digests,
        num_path_tokens=above + len(tokens),
        context=CONTEXT if parent is None else b"",
        logprobs=np.full(len(tokens), -1.0, dtype="<f4").tobytes() if sampled else b"",
        spans=(0, 1) if sampled else (),
        **fields,
    )
    tree.add(node)
    return node


def linear_samples(nodes: Sequence[Node]) -> list[tuple[list[int], list[int], list[int]]]:
    """Return (token ids, loss mask, versions) of each branch."""
    linear = unroll(flatten([nodes]), is_trained_once=True)
    starts = linear.layout.sample_starts[1:-1]
    arrays = (linear.token_ids, linear.loss_mask, linear.versions)
    ids, masks, versions = ([part.tolist() for part in np.split(array, starts)] for array in arrays)
    return list(zip(ids, masks, versions, strict=True))


def grow(walks: list[list[int]]) -> PrefixTree:
    """Each walk is a conversation of numbered user messages, each answered by a message that repeats it."""
    tree = PrefixTree()
    for number, walk in enumerate(walks):
        messages: tuple[bytes, ...] = ()
        for said in walk:
            messages += (b"u%d" % said,)
            match = tree.match(messages, CONTEXT)
            parent = match.node.index if match.node else None
            new = messages[match.num_messages :]
            kind = NodeKind.PROMPT if match.node else NodeKind.ROOT
            context = b"" if match.node else CONTEXT
            prompt = tree.prompt_child(parent, new, context) or add(tree, parent, kind, [said], new)
            messages += (b"a%d" % said,)
            add(tree, prompt.index, NodeKind.SAMPLED, [10 + said, number], (messages[-1],))
    return tree


@given(TURNS)
def test_answers_above_an_answer_are_told_with_the_messages_up_to_each(walks: list[list[int]]) -> None:
    tree = grow(walks)
    answers = [node for node in tree.nodes if node.kind is NodeKind.SAMPLED]
    for node in answers:
        paths = [tree.path(above.index) for above in reversed(tree.path(node.index)) if above in answers]
        counts = [sum(len(one.digests) for one in path) for path in paths]
        expected = [(path[-1], count) for path, count in zip(paths, counts, strict=True)]
        assert list(tree.answers_up(node, counts[0])) == expected


@given(st.sampled_from(["user", "assistant", "system", "tool", "developer"]), st.text())
def test_a_message_of_role_and_text_has_the_same_digest_as_one_with_empty_fields(
    role: str, text: str
) -> None:
    for content in (text, f"<think>no</think>{text}", f"{text}</think>yes"):
        message = {"role": role, "content": content}
        expected = message_digest(message | {"tool_calls": None, "name": None})
        assert message_digests([message]) == (expected,)
        assert message_digest(message) == expected


@given(TURNS)
def test_every_conversation_is_found_again_at_its_full_depth(walks: list[list[int]]) -> None:
    tree = grow(walks)
    for walk in walks:
        messages = tuple(d for said in walk for d in (b"u%d" % said, b"a%d" % said))
        match = tree.match((*messages, b"new"), CONTEXT)
        assert match.num_messages == len(messages)
        assert match.node is not None
        path = [digest for node in tree.path(match.node.index) for digest in node.digests]
        assert tuple(path) == messages


MESSAGES = st.lists(st.sampled_from([b"u0", b"u1", b"u2", b"a0", b"a1", b"a2"]), max_size=9).map(tuple)


@given(TURNS, MESSAGES, st.data())
def test_a_tree_without_branches_is_matched_as_if_it_were_walked(
    walks: list[list[int]], extra: tuple[bytes, ...], data: st.DataObject
) -> None:
    tree = grow(walks[: data.draw(st.integers(1, 2))])
    if data.draw(st.booleans()):  # a turn whose answer has not come, or broke off
        new = add(tree, len(tree.nodes) - 1, NodeKind.PROMPT, [1], (b"u1",))
        if data.draw(st.booleans()):
            add(tree, new.index, NodeKind.SAMPLED, [2], (b"a1",), is_partial=data.draw(st.booleans()))
    path = tuple(d for node in tree.path(len(tree.nodes) - 1) for d in node.digests)
    num_same = data.draw(st.sampled_from([len(path), len(path) - 1, len(path) // 2]))
    said = path[:num_same] + extra[: data.draw(st.integers(0, 2))]
    answers = data.draw(st.sampled_from([None, said, (b"a2",) * len(said)]))
    context = data.draw(st.sampled_from([CONTEXT, b"others"]))

    found = tree.match(said, context, answers)

    tree.line = None
    assert found == tree.match(said, context, answers)


def test_a_line_is_matched_only_after_an_answer_by_what_is_said_in_it_and_goes_on() -> None:
    tree = grow([[0, 1]])
    path = (b"u0", b"a0", b"u1", b"a1")
    assert tree.match(path, CONTEXT).num_messages == 2
    assert tree.match((*path, b"u2"), b"others").node is None
    assert tree.match((*path, b"u2"), CONTEXT, (b"u0", b"a0", b"u1", b"a2", b"u2")).num_messages == 2
    add(tree, 3, NodeKind.PROMPT, [1], (b"u2",))
    match = tree.match((*path, b"u2", b"u2"), CONTEXT)
    assert (match.node, match.num_messages, match.cause) == (tree.nodes[3], 4, ForkCause.HISTORY)


def test_a_conversation_without_branches_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = grow([[0, 1, 2]])
    monkeypatch.setattr(PrefixTree, "_descend", None)
    found = tree.match((b"u0", b"a0", b"u1", b"a1", b"u2", b"a2", b"u0"), CONTEXT)
    assert (found.node, found.num_messages, found.cause) == (tree.nodes[-1], 6, None)


@given(TURNS)
def test_each_sampled_token_is_trained_exactly_once(walks: list[list[int]]) -> None:
    tree = grow(walks)
    samples = linear_samples(tree.nodes)
    num_sampled = sum(node.num_tokens for node in tree.nodes if node.kind is NodeKind.SAMPLED)
    assert sum(sum(mask) for _, mask, _ in samples) == num_sampled
    paths = [np.frombuffer(tree.path_tokens(leaf.index), dtype="<i4").tolist() for leaf in tree.leaves()]
    assert sorted(ids for ids, _, _ in samples) == sorted(paths)


def test_shared_answer_is_trained_in_one_branch_only() -> None:
    tree = PrefixTree()
    root = add(tree, None, NodeKind.ROOT, [1], (b"u",))
    shared = add(tree, root.index, NodeKind.SAMPLED, [2, 3], (b"a",))
    for said in (4, 5):
        prompt = add(tree, shared.index, NodeKind.PROMPT, [said], (b"u%d" % said,))
        add(tree, prompt.index, NodeKind.SAMPLED, [said + 10], (b"a",))
    assert [mask for _, mask, _ in linear_samples(tree.nodes)] == [[0, 1, 1, 0, 1], [0, 0, 0, 0, 1]]


def test_partial_masked_and_unknown_tokens_are_never_trained() -> None:
    tree = PrefixTree()
    root = add(tree, None, NodeKind.ROOT, [1], (b"u",))
    add(tree, root.index, NodeKind.SAMPLED, [2], (b"a",), is_partial=True)
    assert flatten([tree.nodes]).layout.num_samples == 0
    node = add(
        tree, root.index, NodeKind.SAMPLED, [2, 3, 4], (b"b",), loss_mask=np.packbits([1, 0, 1]).tobytes()
    )
    ((_, mask, versions),) = linear_samples(tree.nodes)
    assert (mask, versions) == ([0, 1, 0, 1], [-1, 1, 1, 1])
    assert node.num_path_tokens == 4


def test_different_tools_or_a_different_beginning_give_a_new_root_with_its_cause() -> None:
    tree = grow([[0]])
    assert tree.match((b"u9",), CONTEXT).cause is ForkCause.NEW_ROOT
    assert tree.match((b"u0", b"a0", b"u1"), b"other tools").cause is ForkCause.CONTEXT
    assert tree.match((b"u0", b"edited", b"u1"), CONTEXT).cause is ForkCause.HISTORY
    assert tree.match((b"u0", b"a0", b"u1"), CONTEXT).cause is None


def test_digests_tolerate_what_clients_change_in_an_answer() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}}
    same = {"function": {"arguments": {"a": 2, "b": 1}, "name": "f"}, "id": "x"}
    answer = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"}
    bare = {"tool_calls": [same], "role": "assistant"}
    assert is_same_message(message_digest(bare), message_digest(answer))
    thought = {"role": "assistant", "content": "<think>hm</think>\n46"}
    parts = {"role": "assistant", "content": [{"type": "text", "text": "46"}]}
    assert is_same_message(message_digest(parts), message_digest(thought))
    assert message_digest({**parts, "reasoning_content": "hm\n"}) == message_digest(thought)
    assert not is_same_message(
        message_digest({"role": "assistant", "content": "47"}), message_digest(thought)
    )
    assert message_digest({"role": "user", "content": "46"}) != message_digest(
        {"role": "user", "content": " 46"}
    )


def test_reasoning_that_an_answer_did_not_have_is_another_message() -> None:
    thought = {"role": "assistant", "content": "46", "reasoning_content": "hm"}
    for other in ({**thought, "reasoning_content": "ah"}, {**thought, "content": "<think>ah</think>46"}):
        assert not is_same_message(message_digest(other), message_digest(thought))
    plain = {"role": "assistant", "content": "46"}
    assert not is_same_message(message_digest(thought), message_digest(plain))
    assert message_digest({**plain, "reasoning_content": " "}) == message_digest(plain)
