"""How a request joins its session's tree: matched on messages, proven on text, extended by new tokens only.

Enters: the tree and the request's messages. Leaves: a `TurnPlan` with the prompt's ids (the path's own ids and the
encoding of the text that is new) and the verdict. Invariant: no token that the policy sampled is tokenised again,
unless the verdict says that the template rewrote history; then it is context, not training data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seamlessflow.core.trajectory.messages import message_digests, value_digest
from seamlessflow.core.trajectory.prefix_tree import (
    TOKEN_BYTES,
    ForkCause,
    Node,
    NodeKind,
    PrefixTree,
    Verdict,
)
from seamlessflow.data_plane.rendering.chat_template import template_messages
from seamlessflow.data_plane.rendering.model_text import ModelText
from seamlessflow.data_plane.rendering.output_parser import THINK


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a prompt is rendered from."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Any] | None
    template_arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """Where a turn's nodes will hang. `new_ids` are the prompt's own tokens, `prompt_ids` the whole path's."""

    parent: int | None
    kind: NodeKind
    new_ids: bytes
    prompt_ids: bytes
    digests: tuple[bytes, ...]
    messages: Sequence[Mapping[str, Any]]
    context: bytes
    verdict: Verdict
    cause: str | None
    starts_in_reasoning: bool

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_ids) // TOKEN_BYTES


def plan_turn(tree: PrefixTree, text: ModelText, conversation: Conversation) -> TurnPlan:
    """Raises TemplateRefused, and ValueError when a message cannot be read."""
    shown = template_messages(conversation.messages)
    digests = message_digests(conversation.messages)
    context = _context(conversation)
    match = tree.match(digests, context)
    full = _render(text, conversation, shown, add_generation_prompt=True)
    for node in _candidates(tree, match.node):
        num_messages = match.num_messages if node is match.node else tree.num_path_messages(node.index)
        known = _render(text, conversation, shown[:num_messages], add_generation_prompt=False)
        new = _new_text(full, known, text, node)
        if new is None:
            continue
        cause = match.cause if node is match.node else ForkCause.TEMPLATE
        return _plan(tree, text, conversation, digests, parent=node, num_messages=num_messages, new=new, cause=cause,
                     full=full)  # fmt: skip
    cause = match.cause if match.node is None else ForkCause.TEMPLATE
    return _plan(
        tree, text, conversation, digests, parent=None, num_messages=0, new=full, cause=cause, full=full
    )


def _plan(
    tree: PrefixTree,
    text: ModelText,
    conversation: Conversation,
    digests: tuple[bytes, ...],
    *,
    parent: Node | None,
    num_messages: int,
    new: str,
    cause: ForkCause | None,
    full: str,
) -> TurnPlan:
    index = parent.index if parent else None
    context = b"" if parent else _context(conversation)
    added = digests[num_messages:]
    same = tree.prompt_child(index, added, context)
    if same is not None:
        new_ids, cause = same.token_ids, ForkCause.REPEAT
    else:
        new_ids = text.encode(new)
    return TurnPlan(
        parent=index,
        kind=NodeKind.PROMPT if parent else NodeKind.ROOT,
        new_ids=new_ids,
        prompt_ids=tree.path_tokens(index) + new_ids,
        digests=added,
        messages=conversation.messages[num_messages:],
        context=context,
        verdict=_verdict(cause),
        cause=cause,
        starts_in_reasoning=full.rstrip().endswith(THINK),
    )


def _verdict(cause: ForkCause | None) -> Verdict:
    if cause is None:
        return Verdict.CLEAN
    return Verdict.REALIGN if cause is ForkCause.TEMPLATE else Verdict.FORK


def _context(conversation: Conversation) -> bytes:
    return value_digest([conversation.tools or [], dict(conversation.template_arguments)])


def _candidates(tree: PrefixTree, node: Node | None) -> Sequence[Node]:
    """The matched answer, then earlier ones on its path: where the template may still agree."""
    return [] if node is None else [node, *tree.answers_above(node)]


def _new_text(full: str, known: str, text: ModelText, node: Node) -> str | None:
    """What `full` says after the tokens of the path that ends in answer `node`; None when history reads differently.

    What follows the last end-of-turn mark (a line break, usually) was never sampled: it is new. So is the mark itself
    after an answer that was cut short.
    """
    if not full.startswith(known):
        return None
    at, mark = max((known.rfind(end), end) for end in text.end_texts)
    if at < 0 or known[at + len(mark) :].strip():
        return None
    return full[at + len(mark) if _ends_turn(node, text) else at :]


def _ends_turn(node: Node, text: ModelText) -> bool:
    last = np.frombuffer(node.token_ids[-TOKEN_BYTES:], dtype="<i4")
    return len(last) == 1 and int(last[0]) in text.end_ids


def _render(
    text: ModelText, conversation: Conversation, messages: Sequence[Any], *, add_generation_prompt: bool
) -> str:
    return text.template.render(
        messages,
        tools=conversation.tools,
        arguments=conversation.template_arguments,
        add_generation_prompt=add_generation_prompt,
    )
