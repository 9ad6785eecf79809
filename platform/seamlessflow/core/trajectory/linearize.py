"""Trajectory tree → samples: every leaf-to-root path, with each sampled token trained in one of them only.

A shared answer is trained in the first branch that holds it and is context in the others. Tokens of unknown version,
masked tokens and partial answers are never trained. A path with nothing left to train gives no sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.batching.format import PROMPT_VERSION
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind, PrefixTree
from seamlessflow.core.trajectory.version_spans import spans_expand


@dataclass(frozen=True, slots=True)
class Sample:
    """One branch, root first; arrays of equal length T."""

    token_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    behaviour_logprobs: NDArray[np.float32]
    versions: NDArray[np.int32]


def linearize(nodes: Sequence[Node]) -> list[Sample]:
    """Samples of one session. `nodes` in order of their index."""
    tree = PrefixTree()
    for node in nodes:
        tree.add(node)
    trained: set[int] = set()
    samples = []
    for leaf in tree.leaves():
        path = [node for node in tree.path(leaf.index) if not node.is_partial]
        sample = _sample(path, trained)
        trained.update(node.index for node in path)
        if sample.loss_mask.any():
            samples.append(sample)
    return samples


def _sample(path: list[Node], trained: set[int]) -> Sample:
    pieces = [
        _piece(node, is_trained=node.kind == NodeKind.SAMPLED and node.index not in trained) for node in path
    ]
    while pieces and not pieces[-1].loss_mask.any():
        pieces.pop()  # context after the last trained token teaches nothing
    if not pieces:
        return _piece(None, is_trained=False)
    return Sample(
        token_ids=np.concatenate([p.token_ids for p in pieces]),
        loss_mask=np.concatenate([p.loss_mask for p in pieces]),
        behaviour_logprobs=np.concatenate([p.behaviour_logprobs for p in pieces]),
        versions=np.concatenate([p.versions for p in pieces]),
    )


def _piece(node: Node | None, *, is_trained: bool) -> Sample:
    ids = np.frombuffer(node.token_ids if node else b"", dtype="<i4").astype(np.int32, copy=False)
    if node is None or node.kind != NodeKind.SAMPLED:
        return Sample(
            token_ids=ids,
            loss_mask=np.zeros(len(ids), dtype=np.uint8),
            behaviour_logprobs=np.zeros(len(ids), dtype=np.float32),
            versions=np.full(len(ids), PROMPT_VERSION, dtype=np.int32),
        )
    versions = spans_expand(node.spans, len(ids))
    mask = _stored_mask(node) & (versions >= 0) if is_trained else np.zeros(len(ids), dtype=np.bool_)
    return Sample(
        token_ids=ids,
        loss_mask=mask.astype(np.uint8),
        behaviour_logprobs=np.frombuffer(node.logprobs, dtype="<f4").astype(np.float32, copy=False),
        versions=versions,
    )


def _stored_mask(node: Node) -> NDArray[np.bool_]:
    if node.loss_mask is None:
        return np.ones(node.num_tokens, dtype=np.bool_)
    bits = np.frombuffer(node.loss_mask, dtype=np.uint8)
    return np.unpackbits(bits, count=node.num_tokens).astype(np.bool_)
