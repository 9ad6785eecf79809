"""Joins a request to its session's tree: matches messages, verifies the match on text, adds only new tokens.

`turn_match` takes the tree and the request's messages; `turn_plan` returns a `TurnPlan` with the drift and the prompt's
ids, which are the path's own ids and the encoding of the new text. In between, `rendering/prompt` renders and tokenises
the text, usually in another process. Invariant: tokens that the policy sampled are never tokenised again, unless the
drift says that the template rewrote history; they are then context, not training data.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seamlessflow.core.guidance.answer_grammar import ToolDemand
from seamlessflow.core.guidance.guide import GuideKind
from seamlessflow.core.trajectory.messages import message_digests, value_digest
from seamlessflow.core.trajectory.prefix_tree import (
    TOKEN_BYTES,
    Drift,
    ForkCause,
    Match,
    Node,
    NodeKind,
    PrefixTree,
)
from seamlessflow.data_plane.turns.rendering.chat_template import template_messages
from seamlessflow.data_plane.turns.rendering.model_text import ModelText
from seamlessflow.data_plane.turns.rendering.prompt import Cut, Prompt, PromptRequest
from seamlessflow.data_plane.turns.trajectory_manager.answer_forms import AnswerForms

SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Conversation:
    """The input of the chat template.

    named: answers that the client named by their identifiers, as pairs: how many messages they end, and their node.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Any] | None
    template_arguments: Mapping[str, Any]
    named: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """A prompt that no template renders: a text, or token ids (packed int32)."""

    text: str = ""
    token_ids: bytes | None = None

    def request(self, *, model: str, max_tokens: int) -> PromptRequest:
        """Return what to tokenise."""
        return PromptRequest(
            model, messages=(), tools=None, arguments={}, cuts=(), max_tokens=max_tokens, text=self.text
        )


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """Where a turn's nodes join the tree. `new_ids`: the prompt's own tokens; `prompt_ids`: those of the whole path.

    num_cached_tokens: of the prompt, how many the tree had before; never all of them, because an engine reads at least
    the last one again.
    """

    parent: int | None
    kind: NodeKind
    new_ids: bytes
    prompt_ids: bytes
    num_cached_tokens: int
    digests: tuple[bytes, ...]
    messages: Sequence[Mapping[str, Any]]
    context: bytes
    drift: Drift
    cause: str | None
    starts_in_reasoning: bool
    guide: tuple[GuideKind, str] | None = None  # of its answers
    has_one_call: bool = False  # the template cannot render an answer with several calls

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_ids) // TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class TurnMatch:
    """The answers after which a request may join its tree, judged by messages alone; the likeliest comes first.

    shown: the messages for the template: the conversation's, with recorded answers in a form that it can render.
    """

    conversation: Conversation
    shown: Sequence[Mapping[str, Any]]
    digests: tuple[bytes, ...]
    match: Match
    answers: Sequence[Node]
    num_messages: Sequence[int]  # of the conversation, up to each of the answers

    def request(
        self,
        text: ModelText,
        *,
        model: str,
        max_tokens: int,
        demand: ToolDemand | None = None,
        retains_reasoning: bool = False,
    ) -> PromptRequest:
        """Return what to render. Raises ValueError if a message cannot be read."""
        return PromptRequest(
            model=model,
            messages=template_messages(self.shown, has_text_arguments=text.family.has_text_arguments),
            tools=self.conversation.tools,
            arguments=self.conversation.template_arguments,
            cuts=[
                Cut(num, _end_of_turn(node, text))
                for node, num in zip(self.answers, self.num_messages, strict=True)
            ],
            max_tokens=max_tokens,
            family=text.family.name,
            demand=demand,
            retains_reasoning=retains_reasoning,
        )


def turn_match(
    tree: PrefixTree, conversation: Conversation, text: ModelText, *, stop: Sequence[str] = ()
) -> TurnMatch:
    """Find where a request with these stop strings may join. Raises ValueError if a message cannot be read."""
    messages = conversation.messages
    digests, forms = message_digests(messages), AnswerForms(tree, text, conversation.tools, stop)
    context = _context(conversation)
    recorded = forms.recorded_digests(messages, digests)
    match = tree.match(digests, context, recorded)
    match = tree.match_named(digests, context, conversation.named, match)
    if match.cause is ForkCause.NEW_ROOT:
        match = replace(match, cause=_root_cause(tree, conversation, digests, recorded))
    # After the likeliest answer, earlier ones on its path, up to which the template may render the same.
    found = [] if match.node is None else list(tree.answers_up(match.node, match.num_messages))
    answers, num_messages = [node for node, _ in found], [num for _, num in found]
    shown = forms.with_calls(messages, match.num_messages)
    return TurnMatch(conversation, shown, digests, match, answers, num_messages)


def turn_plan(tree: PrefixTree, matched: TurnMatch, prompt: Prompt) -> TurnPlan:
    """Plan a matched turn. The tree may have grown since `turn_match`, but nodes found there never change."""
    if prompt.cut is None:
        cause = matched.match.cause if matched.match.node is None else ForkCause.TEMPLATE
        return _plan(tree, matched, prompt, parent=None, num_messages=0, cause=cause)
    parent = matched.answers[prompt.cut]
    cause = matched.match.cause if parent is matched.match.node else ForkCause.TEMPLATE
    num_messages = matched.num_messages[prompt.cut]
    return _plan(tree, matched, prompt, parent=parent, num_messages=num_messages, cause=cause)


def raw_plan(tree: PrefixTree, prompt: RawPrompt, token_ids: bytes, text: ModelText) -> TurnPlan:
    """Plan a turn without messages: it joins the answer with the longest path that its tokens begin with.

    Without such an answer it begins a root of its own. Only tokens are compared, and only with turns of this kind.
    """
    raw_roots = [root for root in tree.roots() if root.context == _raw_context(root.token_ids)]
    parent = tree.longest_prefix(token_ids, raw_roots)
    path_ids = tree.path_tokens(parent.index) if parent else b""
    new_ids = token_ids[len(path_ids) :]
    messages = ({"role": "user", "content": _raw_words(prompt, new_ids, text, is_joined=parent is not None)},)
    digests, context = message_digests(messages), _raw_context(new_ids)
    index = parent.index if parent else None
    is_repeated = tree.prompt_child(index, digests, context) is not None
    if parent is None:
        joined = ForkCause.NEW_ROOT if tree.nodes else None
    else:
        joined = ForkCause.HISTORY if tree.children.get(index) else None
    cause = ForkCause.REPEAT if is_repeated else joined
    return TurnPlan(
        parent=index,
        kind=NodeKind.PROMPT if parent else NodeKind.ROOT,
        new_ids=new_ids,
        prompt_ids=token_ids,
        num_cached_tokens=_num_cached(token_ids if is_repeated else path_ids, token_ids),
        digests=digests,
        messages=messages,
        context=context,
        drift=_drift(cause),
        cause=cause,
        starts_in_reasoning=False,
    )


def _raw_context(token_ids: bytes) -> bytes:
    return value_digest(["raw", hashlib.blake2b(token_ids).hexdigest()])


def _raw_words(prompt: RawPrompt, new_ids: bytes, text: ModelText, *, is_joined: bool) -> str:
    """Return what people read: the text that a text prompt adds; nothing for token ids."""
    if prompt.token_ids is not None:
        return ""
    return text.decode(np.frombuffer(new_ids, dtype="<i4").tolist()) if is_joined else prompt.text


def _plan(
    tree: PrefixTree,
    matched: TurnMatch,
    prompt: Prompt,
    *,
    parent: Node | None,
    num_messages: int,
    cause: ForkCause | None,
) -> TurnPlan:
    conversation = matched.conversation
    index = parent.index if parent else None
    context = b"" if parent else _context(conversation)
    added = matched.digests[num_messages:]
    same = tree.prompt_child(index, added, context)
    if same is not None:
        cause = ForkCause.REPEAT
    path_ids = tree.path_tokens(index)
    new_ids = prompt.new_ids if same is None else same.token_ids
    prompt_ids = path_ids + new_ids
    return TurnPlan(
        parent=index,
        kind=NodeKind.PROMPT if parent else NodeKind.ROOT,
        new_ids=new_ids,
        prompt_ids=prompt_ids,
        num_cached_tokens=_num_cached(path_ids if same is None else prompt_ids, prompt_ids),
        digests=added,
        messages=conversation.messages[num_messages:],
        context=context,
        drift=_drift(cause),
        cause=cause,
        starts_in_reasoning=prompt.starts_in_reasoning,
        guide=prompt.guide,
        has_one_call=prompt.has_one_call,
    )


def _num_cached(known_ids: bytes, prompt_ids: bytes) -> int:
    return max(min(len(known_ids), len(prompt_ids) - TOKEN_BYTES) // TOKEN_BYTES, 0)


def _drift(cause: ForkCause | None) -> Drift:
    if cause is None:
        return Drift.CLEAN
    return Drift.REALIGN if cause is ForkCause.TEMPLATE else Drift.FORK


def _context(conversation: Conversation) -> bytes:
    return value_digest([conversation.tools or [], dict(conversation.template_arguments)])


def _root_cause(
    tree: PrefixTree, conversation: Conversation, digests: tuple[bytes, ...], recorded: Iterable[bytes]
) -> ForkCause:
    """Say why a request begins differently: it changed an earlier conversation, or begins another one."""
    if _has_other_system(tree, conversation, digests):
        return ForkCause.SYSTEM
    return ForkCause.HISTORY if tree.has_answer_of(recorded) else ForkCause.NEW_ROOT


def _has_other_system(tree: PrefixTree, conversation: Conversation, digests: tuple[bytes, ...]) -> bool:
    """Return whether the request continues an earlier conversation after another system prompt."""
    if conversation.messages[0].get("role") not in SYSTEM_ROLES:
        return False
    return any(
        1 < len(root.digests) < len(digests) and root.digests[1:] == digests[1 : len(root.digests)]
        for root in tree.roots()
    )


def _end_of_turn(node: Node, text: ModelText) -> str:
    """Return the end-of-turn mark that an answer sampled last; "" if it was cut short."""
    if not node.token_ids:
        return ""
    last = int.from_bytes(node.token_ids[-TOKEN_BYTES:], "little", signed=True)
    return text.end_texts[text.end_ids.index(last)] if last in text.end_ids else ""
