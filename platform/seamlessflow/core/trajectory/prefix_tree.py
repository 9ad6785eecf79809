"""The trajectory tree of one session: nodes that have only their own tokens, as packed bytes.

`match` takes a request as canonical message digests (and a digest of everything else that its prompt depends on, such
as its tools). It returns the deepest answer whose path has exactly a prefix of those messages. The caller then verifies
on rendered text that the request really continues that path.

Invariants: a node's index is its position in `nodes`; a parent comes before its children; a sampled node's parent is a
prompt or root node; token ids never change once a node is added.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from seamlessflow.core.guidance.record import GuideRecord
from seamlessflow.core.trajectory.messages import is_same_message, without_reasoning
from seamlessflow.core.trajectory.version_spans import Spans

TOKEN_BYTES = 4  # int32
NODE_BYTES = 1000  # of a node beside its tokens and logprobs: the object, its digests, its links in the tree


class NodeKind(IntEnum):
    """The values are stored in the database."""

    ROOT = 0  # a task prompt, shared by the sessions that begin with it
    PROMPT = 1  # tokens the agent added
    SAMPLED = 2  # tokens the policy produced


class Drift(StrEnum):
    """How a request joined its tree: clean (appended), realign (same messages, other text), fork (other messages)."""

    CLEAN = "clean"
    REALIGN = "realign"
    FORK = "fork"


class ForkCause(StrEnum):
    """Why the drift of a request is not clean. A new root begins another conversation; the other causes break one."""

    NEW_ROOT = "the conversation begins differently"
    SYSTEM = "the system prompt changed"
    CONTEXT = "tools or template arguments changed"
    HISTORY = "earlier messages were edited, dropped or branched"
    REPEAT = "the same request was sent again"
    TEMPLATE = "the template renders the history differently now"


@dataclass(frozen=True, slots=True)
class Node:
    """`digests` are those of the messages that it added; `num_path_tokens` counts tokens from the root to its end."""

    index: int
    parent: int | None
    kind: NodeKind
    token_ids: bytes
    digests: tuple[bytes, ...]
    num_path_tokens: int
    context: bytes = b""  # roots: digest of tools and template arguments
    logprobs: bytes = b""
    spans: Spans = ()
    loss_mask: bytes | None = None  # packed bits, most significant first; None: every token is trained
    is_partial: bool = False
    guided: GuideRecord | None = None  # answers: the guide that they were sampled under
    calls: bytes = b""  # answers with text: digest of their tool calls with identifiers

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids) // TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class Match:
    """The answer that a request continues, and how many of the request's messages its path has."""

    node: Node | None
    num_messages: int
    cause: ForkCause | None  # why the request does not simply continue its tree


@dataclass(slots=True)
class PrefixTree:
    """answers: the newest answer with each digest, reasoning left aside. called: answers with text by their calls.

    forms: digests of messages that clients handed back, with those of the answers that they mean; filled by
    `answer_forms`. line: the digests from the root to the last node while nothing has branched; None afterwards.
    """

    nodes: list[Node] = field(default_factory=list)
    children: dict[int | None, list[int]] = field(default_factory=dict)
    answers: dict[bytes, Node] = field(default_factory=dict)
    called: dict[bytes, Node] = field(default_factory=dict)
    forms: dict[bytes, bytes] = field(default_factory=dict)
    line: tuple[bytes, ...] | None = ()
    num_bytes: int = 0  # of memory, about

    def add(self, node: Node) -> None:
        if node.index != len(self.nodes):
            raise ValueError(f"node {node.index} is not the next one, {len(self.nodes)}")
        self.line = self._longer_line(node)
        self.nodes.append(node)
        self.num_bytes += NODE_BYTES + len(node.token_ids) + len(node.logprobs)
        self.children.setdefault(node.parent, []).append(node.index)
        if node.kind == NodeKind.SAMPLED and not node.is_partial and node.digests:
            self.answers[without_reasoning(node.digests[0])] = node
            if node.calls:
                self.called[node.calls] = node

    def match(
        self, digests: tuple[bytes, ...], context: bytes, answers: tuple[bytes, ...] | None = None
    ) -> Match:
        """Find the deepest answer whose path's messages are a proper prefix of the request's.

        answers: digests to compare with answers instead of `digests`, of the same length. A request may leave out the
        reasoning of any message.
        """
        answers = digests if answers is None else answers
        if self._repeats_line(digests, context, answers):
            return Match(self.nodes[-1], len(self.line or ()), None)
        best, depth = self._descend(digests, context, answers)
        if best is not None:
            return Match(best, depth, ForkCause.HISTORY if self.children.get(best.index) else None)
        if not self.nodes:
            return Match(None, 0, None)
        # A request as long as a root cannot continue it: it begins a conversation of its own.
        begun = [
            root
            for root in self.roots()
            if len(root.digests) < len(digests) and _repeats(digests[: len(root.digests)], root.digests)
        ]
        if not begun:
            return Match(None, 0, ForkCause.NEW_ROOT)
        is_edited = any(root.context == context for root in begun)
        return Match(None, 0, ForkCause.HISTORY if is_edited else ForkCause.CONTEXT)

    def has_answer_of(self, digests: Iterable[bytes]) -> bool:
        """Return whether one of these messages is a recorded answer, reasoning left aside."""
        return any(without_reasoning(digest) in self.answers for digest in digests)

    def match_named(
        self, digests: tuple[bytes, ...], context: bytes, named: Sequence[tuple[int, int]], found: Match
    ) -> Match:
        """Return the match with the deepest answer that the request names, unless `found` is deeper.

        named: how many messages an answer ends, and its node. The same words may have been sampled twice, and only the
        name says which answer is meant. It counts only if the messages up to the answer are those of its path.
        """
        for num_messages, index in sorted(named, reverse=True):
            if num_messages < found.num_messages or num_messages >= len(digests):
                continue
            path = self.path(index)
            recorded = tuple(digest for node in path for digest in node.digests)
            if path[0].context == context and _repeats(digests[:num_messages], recorded):
                is_first = not self.children.get(index)
                return Match(self.nodes[index], num_messages, None if is_first else ForkCause.HISTORY)
        return found

    def roots(self) -> list[Node]:
        return [self.nodes[index] for index in self.children.get(None, ())]

    def longest_prefix(self, token_ids: bytes, roots: list[Node]) -> Node | None:
        """Find the answer below some of the roots with the longest path that `token_ids` (packed int32) begin with."""
        best, depth = None, -1
        stack = [(root, 0) for root in roots]
        while stack:
            node, start = stack.pop()
            end = start + len(node.token_ids)
            if node.is_partial or token_ids[start:end] != node.token_ids:
                continue
            if node.kind == NodeKind.SAMPLED and end >= depth:
                best, depth = node, end
            stack += [(self.nodes[index], end) for index in self.children.get(node.index, ())]
        return best

    def prompt_child(self, parent: int | None, digests: tuple[bytes, ...], context: bytes) -> Node | None:
        """Find the prompt node under `parent` with exactly these messages, if an earlier request added one."""
        for index in self.children.get(parent, ()):
            node = self.nodes[index]
            if node.kind != NodeKind.SAMPLED and node.digests == digests and node.context == context:
                return node
        return None

    def path(self, index: int | None) -> list[Node]:
        """Return the nodes from the root to `index`."""
        nodes: list[Node] = []
        while index is not None:
            node = self.nodes[index]
            nodes.append(node)
            index = node.parent
        return nodes[::-1]

    def path_tokens(self, index: int | None) -> bytes:
        return b"".join(node.token_ids for node in self.path(index))

    def answers_up(self, node: Node, num_messages: int) -> Iterator[tuple[Node, int]]:
        """Yield an answer and earlier ones on its path, nearest first, with the number of messages up to each.

        `num_messages`: those up to `node`.
        """
        above: Node | None = node
        while above is not None:
            if above.kind == NodeKind.SAMPLED:
                yield above, num_messages
            num_messages -= len(above.digests)
            above = None if above.parent is None else self.nodes[above.parent]

    def leaves(self) -> list[Node]:
        return [node for node in self.nodes if not self.children.get(node.index)]

    def _longer_line(self, node: Node) -> tuple[bytes, ...] | None:
        is_next = node.parent == (node.index - 1 if node.index else None)
        return None if self.line is None or not is_next or node.is_partial else self.line + node.digests

    def _repeats_line(self, digests: tuple[bytes, ...], context: bytes, answers: tuple[bytes, ...]) -> bool:
        """Return whether a request goes on after the last answer of a tree without branches, as nearly all do.

        Then there is no deeper answer, and no other at this depth, so nothing needs to be walked.
        """
        line = self.line
        if not line or len(digests) <= len(line) or self.nodes[-1].kind != NodeKind.SAMPLED:
            return False
        if self.nodes[0].context != context or digests[: len(line)] != line:
            return False
        return answers is digests or answers[: len(line)] == line

    def _descend(
        self, digests: tuple[bytes, ...], context: bytes, answers: tuple[bytes, ...]
    ) -> tuple[Node | None, int]:
        """Walk down from the roots, newest child first; no recursion, because a conversation may have thousands of
        turns."""
        best: tuple[Node | None, int] = (None, 0)
        stack: list[tuple[int | None, int]] = [(None, 0)]
        while stack:
            above, used = stack.pop()
            for index in self.children.get(above, ()):
                node = self.nodes[index]
                end = used + len(node.digests)
                if node.is_partial or (node.parent is None and node.context != context):
                    continue
                is_answer = node.kind == NodeKind.SAMPLED
                sent = answers if is_answer else digests
                if end >= len(digests) or not _repeats(sent[used:end], node.digests):
                    continue
                if is_answer and end >= best[1]:
                    best = (node, end)
                stack.append((index, end))
        return best


def _repeats(sent: tuple[bytes, ...], recorded: tuple[bytes, ...]) -> bool:
    return sent == recorded or (len(sent) == len(recorded) and all(map(is_same_message, sent, recorded)))
