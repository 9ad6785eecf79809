"""Turns conversations of one or more sessions into trees of tokens, depth first (`core.trajectory.tree_layout`).

Context at the beginning of several sessions or branches is stored once; it is compared by its tokens. Sampled tokens
are never merged, because every draw is a sample of its own. Partial answers are left out (what follows them continues
from the node above), and so is context after the last trained token of a branch. Tokens of unknown version, tokens
without a finite logprob and masked tokens are kept as context and never trained. The same sessions always give the same
trees.

Source: "Tree Training" (arXiv 2511.00413), where the flat sequence is attended to by ancestors only.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.guidance.record import GuideRecord
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind
from seamlessflow.core.trajectory.tree_layout import NO_PARENT, TreeLayout
from seamlessflow.core.trajectory.version_spans import spans_expand

PROMPT_VERSION = -1  # in `versions`: the token was not sampled
NOT_GUIDED = -1
_Scalar = TypeVar("_Scalar", bound=np.generic)
NodeMarks = Mapping[
    int, int
]  # for one session: index of an answer's node → how many of its first tokens to mark


@dataclass(frozen=True, slots=True)
class FlatTrees:
    """Flattened trees: T tokens of S branches."""

    layout: TreeLayout
    sample_sessions: NDArray[np.int64]  # [S] index of the session whose branch it is
    token_ids: NDArray[np.int32]  # [T]
    loss_mask: NDArray[np.uint8]  # [T] 1: sampled and trained
    behaviour_logprobs: NDArray[np.float32]  # [T] as served; 0 where not sampled
    versions: NDArray[np.int32]  # [T] PROMPT_VERSION where not sampled
    is_marked: NDArray[np.bool_]  # [T] marked by the caller
    guide_positions: NDArray[
        np.int32
    ]  # [T] 0, 1, … within the guided tokens of an answer; NOT_GUIDED elsewhere
    guides: tuple[GuideRecord, ...]  # of the guided answers, in the order of their first tokens

    @property
    def guided_starts(self) -> NDArray[np.int64]:
        """Return the first guided token of each guided answer, one for each of `guides`."""
        return np.flatnonzero(self.guide_positions == 0)

    @property
    def guided_ends(self) -> NDArray[np.int64]:
        """Return the token after the last guided one of each guided answer."""
        is_guided = self.guide_positions >= 0
        continues = np.append(is_guided[1:] & (self.guide_positions[1:] > 0), [False])
        return np.flatnonzero(is_guided & ~continues) + 1


@dataclass(slots=True)
class _Segment:
    """Tokens between two forks of the tree that is being built."""

    session: int
    is_sampled: bool
    token_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    behaviour_logprobs: NDArray[np.float32]
    versions: NDArray[np.int32]
    is_marked: NDArray[np.bool_]
    guided: GuideRecord | None = None
    children: list["_Segment"] = field(default_factory=list)

    def sliced(self, tokens: slice) -> "_Segment":
        """Return some of the tokens, without children."""
        return _Segment(
            session=self.session,
            is_sampled=self.is_sampled,
            token_ids=self.token_ids[tokens],
            loss_mask=self.loss_mask[tokens],
            behaviour_logprobs=self.behaviour_logprobs[tokens],
            versions=self.versions[tokens],
            is_marked=self.is_marked[tokens],
            guided=self.guided,
        )

    @property
    def guide_positions(self) -> NDArray[np.int32]:
        """Return the position of each token among the guided ones; a sampled segment begins where its answer does."""
        if self.guided is None:
            return np.full(len(self.token_ids), NOT_GUIDED, dtype=np.int32)
        first = self.guided.first
        return np.maximum(np.arange(-first, len(self.token_ids) - first, dtype=np.int32), NOT_GUIDED)


def flatten(sessions: Sequence[Sequence[Node]], marks: Sequence[NodeMarks] | None = None) -> FlatTrees:
    """Build the trees of all branches with a trained token. The nodes of a session must be in order of their index.

    `marks` gives, for each session, how many first tokens of some of its answers to mark.
    """
    top: list[_Segment] = []
    for number, nodes in enumerate(sessions):
        for root in _session_roots(number, nodes, marks[number] if marks else {}):
            _insert(top, root)
    stack = [*top]
    while stack:
        segment = stack.pop()
        children, segment.children = segment.children, []
        for child in children:
            _insert(segment.children, child)
        stack.extend(segment.children)
    return _lay_out(top)


def unroll(trees: FlatTrees, *, is_trained_once: bool) -> FlatTrees:
    """Write each whole branch out as one sample. A shared answer is trained in the first branch, or in all of them."""
    layout = trees.layout
    own_starts = layout.sample_starts[:-1]
    arrays, masks = [], []
    for segments, own_start in zip(layout.paths(), own_starts, strict=True):
        tokens = np.concatenate([np.arange(segment.start, segment.stop) for segment in segments])
        mask = trees.loss_mask[tokens]
        arrays.append(tokens)
        masks.append(np.where(tokens >= own_start, mask, np.uint8(0)) if is_trained_once else mask)
    indices = _concatenated(arrays, np.int64)
    guide_positions = trees.guide_positions[indices]
    return FlatTrees(
        layout=TreeLayout.of_lengths([len(tokens) for tokens in arrays]),
        sample_sessions=trees.sample_sessions,
        token_ids=trees.token_ids[indices],
        loss_mask=_concatenated(masks, np.uint8),
        behaviour_logprobs=trees.behaviour_logprobs[indices],
        versions=trees.versions[indices],
        is_marked=trees.is_marked[indices],
        guide_positions=guide_positions,
        guides=_guides_at(trees, indices[guide_positions == 0]),
    )


def _guides_at(trees: FlatTrees, firsts: NDArray[np.int64]) -> tuple[GuideRecord, ...]:
    """Return the guides of the answers whose first guided tokens are these."""
    return tuple(trees.guides[number] for number in np.searchsorted(trees.guided_starts, firsts))


def _session_roots(number: int, nodes: Sequence[Node], marks: NodeMarks) -> list[_Segment]:
    """Return the session's trees, without branches and trailing context that train nothing."""
    below: defaultdict[int | None, list[_Segment]] = defaultdict(list)  # by parent, newest first
    for node in reversed(nodes):
        children = below.pop(node.index, [])
        if node.is_partial or not node.token_ids:
            below[node.parent].extend(children)
            continue
        segment = _segment(number, node, num_marked=marks.get(node.index, 0))
        segment.children = children[::-1]
        if not children:
            trained = np.flatnonzero(segment.loss_mask)
            segment = segment.sliced(slice(int(trained[-1]) + 1 if len(trained) else 0))
        if len(segment.token_ids):
            below[node.parent].append(segment)
    return below[None][::-1]


def _insert(siblings: list[_Segment], segment: _Segment) -> None:
    """Add a segment. Context is merged with a sibling that begins with the same tokens."""
    if not segment.is_sampled:
        for index, other in enumerate(siblings):
            num_shared = 0 if other.is_sampled else _num_shared(other.token_ids, segment.token_ids)
            if num_shared:
                siblings[index] = _joined(other, segment, num_shared)
                return
    siblings.append(segment)


def _joined(first: _Segment, second: _Segment, num_shared: int) -> _Segment:
    head = first.sliced(slice(num_shared))
    for segment in (first, second):
        if num_shared == len(segment.token_ids):
            head.children.extend(segment.children)
        else:
            rest = segment.sliced(slice(num_shared, None))
            rest.children = segment.children
            head.children.append(rest)
    return head


def _num_shared(first: NDArray[np.int32], second: NDArray[np.int32]) -> int:
    length = min(len(first), len(second))
    differs = first[:length] != second[:length]
    return int(differs.argmax()) if differs.any() else length


def _lay_out(top: list[_Segment]) -> FlatTrees:
    segments: list[_Segment] = []
    starts, parents, sessions, num_tokens = [], [], [], 0
    stack = [(segment, NO_PARENT) for segment in reversed(top)]
    while stack:
        segment, parent = stack.pop()
        if parent == NO_PARENT or parent != num_tokens - 1:
            starts.append(num_tokens)
            parents.append(parent)
            sessions.append(segment.session)
        sessions[-1] = segment.session  # a branch belongs to the session of its last segment
        segments.append(segment)
        num_tokens += len(segment.token_ids)
        stack.extend((child, num_tokens - 1) for child in reversed(segment.children))
    loss_mask = _concatenated([segment.loss_mask for segment in segments], np.uint8)
    begins = [start for start, parent in zip(starts, parents, strict=True) if parent == NO_PARENT]
    loss_mask[begins] = 0  # the first token of a tree: no token predicts it
    return FlatTrees(
        layout=TreeLayout(np.array([*starts, num_tokens]), np.array(parents, dtype=np.int64)),
        sample_sessions=np.array(sessions, dtype=np.int64),
        token_ids=_concatenated([segment.token_ids for segment in segments], np.int32),
        loss_mask=loss_mask,
        behaviour_logprobs=_concatenated([segment.behaviour_logprobs for segment in segments], np.float32),
        versions=_concatenated([segment.versions for segment in segments], np.int32),
        is_marked=_concatenated([segment.is_marked for segment in segments], np.bool_),
        guide_positions=_concatenated([segment.guide_positions for segment in segments], np.int32),
        guides=tuple(
            segment.guided
            for segment in segments
            if segment.guided and segment.guided.first < len(segment.token_ids)
        ),
    )


def _concatenated(arrays: Sequence[NDArray[_Scalar]], dtype: type[_Scalar]) -> NDArray[_Scalar]:
    return np.concatenate([np.empty(0, dtype=dtype), *arrays])


def _segment(session: int, node: Node, *, num_marked: int) -> _Segment:
    ids = np.frombuffer(node.token_ids, dtype="<i4").astype(np.int32, copy=False)
    if node.kind != NodeKind.SAMPLED:
        return _Segment(
            session=session,
            is_sampled=False,
            token_ids=ids,
            loss_mask=np.zeros(len(ids), dtype=np.uint8),
            behaviour_logprobs=np.zeros(len(ids), dtype=np.float32),
            versions=np.full(len(ids), PROMPT_VERSION, dtype=np.int32),
            is_marked=np.zeros(len(ids), dtype=np.bool_),
        )
    versions = spans_expand(node.spans, len(ids))
    logprobs = np.frombuffer(node.logprobs, dtype="<f4").astype(np.float32, copy=False)
    return _Segment(
        session=session,
        is_sampled=True,
        token_ids=ids,
        loss_mask=_loss_mask(node, versions, logprobs),
        behaviour_logprobs=logprobs,
        versions=versions,
        is_marked=np.arange(len(ids)) < num_marked if num_marked else np.zeros(len(ids), dtype=np.bool_),
        guided=node.guided,
    )


def _loss_mask(node: Node, versions: NDArray[np.int32], logprobs: NDArray[np.float32]) -> NDArray[np.uint8]:
    is_trained = (versions >= 0) & np.isfinite(logprobs)
    if node.loss_mask is not None:
        bits = np.frombuffer(node.loss_mask, dtype=np.uint8)
        is_trained &= np.unpackbits(bits, count=node.num_tokens).astype(np.bool_)
    return is_trained.view(np.uint8)
