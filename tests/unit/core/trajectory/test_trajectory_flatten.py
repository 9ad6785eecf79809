"""Flattening sessions: the same branches as written out by hand, every token once, common context merged."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.trajectory.flatten import FlatTrees, flatten, unroll
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind
from tests.fixtures.random_sessions import random_session
from tests.fixtures.random_trees import branch_tokens

Branch = tuple[int, tuple[int, ...], tuple[int, ...]]  # session, tokens, which of them are trained


def branches_by_hand(session: int, nodes: Sequence[Node]) -> list[Branch]:
    """Root to leaf, without partial answers, up to the last trained token; no branch is a prefix of another."""
    found: list[Branch] = []
    keys: list[tuple[tuple[int, int], ...]] = []  # (node, token in it), which identifies a token
    for leaf in range(len(nodes)):
        path: list[Node] = []
        above: int | None = leaf
        while above is not None:
            path.append(nodes[above])
            above = nodes[above].parent
        tokens, trained, key = [], [], []
        for node in path[::-1]:
            if node.is_partial:
                continue
            mask = np.ones(node.num_tokens, dtype=bool)
            if node.loss_mask is not None:
                mask = np.unpackbits(np.frombuffer(node.loss_mask, np.uint8), count=node.num_tokens) != 0
            is_known = node.kind == NodeKind.SAMPLED and node.spans[1:2] != (-1,)
            tokens += np.frombuffer(node.token_ids, "<i4").tolist()
            trained += [int(is_known and bit) for bit in mask]
            key += [(node.index, place) for place in range(node.num_tokens)]
        length = max((place + 1 for place, bit in enumerate(trained) if bit), default=0)
        if length:
            found.append((session, tuple(tokens[:length]), tuple(trained[:length])))
            keys.append(tuple(key[:length]))
    is_whole = [not any(k != other and other[: len(k)] == k for other in keys) for k in keys]
    kept = {k: b for k, b, whole in zip(keys, found, is_whole, strict=True) if whole}
    return sorted(kept.values())


def branches_of(trees: FlatTrees) -> list[Branch]:
    return sorted(
        (int(session), tuple(trees.token_ids[tokens].tolist()), tuple(trees.loss_mask[tokens].tolist()))
        for session, tokens in zip(trees.sample_sessions, branch_tokens(trees.layout), strict=True)
    )


@given(seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_branches_are_preserved_and_every_sampled_token_occurs_once(seed: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    sessions = [random_session(rng, num_nodes=size) for size in sizes]
    trees = flatten(sessions)
    expected = [branch for number, nodes in enumerate(sessions) for branch in branches_by_hand(number, nodes)]
    assert branches_of(trees) == sorted(expected)
    assert branches_of(unroll(trees, is_trained_once=False)) == sorted(expected)
    once = unroll(trees, is_trained_once=True)
    assert [ids for _, ids, _ in branches_of(once)] == [ids for _, ids, _ in sorted(expected)]
    assert once.loss_mask.sum() == trees.loss_mask.sum()
    assert (trees.versions[trees.loss_mask != 0] >= 0).all()


def session_of(*nodes: tuple[int | None, NodeKind, list[int]]) -> list[Node]:
    return [
        Node(
            index=index,
            parent=parent,
            kind=kind,
            token_ids=np.array(ids, dtype="<i4").tobytes(),
            digests=(),
            num_path_tokens=0,
            logprobs=np.zeros(len(ids), dtype="<f4").tobytes() if kind == NodeKind.SAMPLED else b"",
            spans=(0, 1) if kind == NodeKind.SAMPLED else (),
        )
        for index, (parent, kind, ids) in enumerate(nodes)
    ]


def test_sessions_of_a_group_share_their_prompt_but_never_an_answer() -> None:
    sessions = [
        session_of((None, NodeKind.ROOT, [1, 2, 3, last]), (0, NodeKind.SAMPLED, [7, 8]))
        for last in (4, 4, 5)
    ]
    trees = flatten(sessions)
    assert trees.token_ids.tolist() == [1, 2, 3, 4, 7, 8, 7, 8, 5, 7, 8]
    assert trees.layout.sample_parents.tolist() == [-1, 3, 2]
    assert trees.sample_sessions.tolist() == [0, 1, 2]


def test_an_edited_message_shares_what_precedes_the_edit() -> None:
    session = session_of(
        (None, NodeKind.ROOT, [1]), (0, NodeKind.SAMPLED, [5]),
        (1, NodeKind.PROMPT, [2, 3]), (2, NodeKind.SAMPLED, [6]),
        (1, NodeKind.PROMPT, [2, 4]), (4, NodeKind.SAMPLED, [7]),
        (1, NodeKind.PROMPT, [2]),  # never answered
    )  # fmt: skip
    trees = flatten([session])
    assert trees.token_ids.tolist() == [1, 5, 2, 3, 6, 4, 7]
    assert trees.layout.sample_parents.tolist() == [-1, 2]
    assert trees.loss_mask.tolist() == [0, 1, 0, 0, 1, 0, 1]
