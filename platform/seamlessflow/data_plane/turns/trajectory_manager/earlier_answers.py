"""The answers of a failed attempt, for the next attempt of its slot.

In: the recorded nodes of the earlier attempt, and the turns that it left unfinished. Out: for a prompt of the new
attempt, the answers that were sampled for just these tokens, each turn once and in its order, with their logprobs and
versions. Invariant: only an answer that the policy might have given to this very request is returned; for any other
request there is none, and the policy answers it.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from seamlessflow.core.guidance.guide import Guide
from seamlessflow.core.guidance.record import GuideRecord
from seamlessflow.core.trajectory.answer_progress import AnswerProgress, FinishReason
from seamlessflow.core.trajectory.asked_sampling import AskedSampling
from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES, NodeKind, PrefixTree
from seamlessflow.data_plane.store.turns.node_rows import RESUMED_FLAG, NodeRow

UNFINISHED = "abort"  # the recorded finish reason of an answer that the policy did not end
UNTRAINED_FLAG = "untrained"  # in an answer's flags: why none of its tokens is trained
_Key = tuple[int | None, UUID]  # a prompt's node and a turn


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for. `stop` and `has_one_call`: where its answers may end before the policy ends them."""

    prompt_ids: bytes
    asked: AskedSampling
    max_tokens: int
    num_choices: int
    end_ids: Sequence[int]
    stop: Sequence[str] = ()
    has_one_call: bool = False

    @property
    def may_be_cut(self) -> bool:
        return bool(self.stop) or self.has_one_call

    def begun(self) -> "Begun":
        """Return answers without a token."""
        return Begun(
            self,
            [
                AnswerProgress(prompt_ids=self.prompt_ids, max_tokens=self.max_tokens, asked=self.asked)
                for _ in range(self.num_choices)
            ],
        )


@dataclass(frozen=True, slots=True)
class Begun:
    """The answers that a turn begins with: empty ones, or those of an earlier turn that asked for the same.

    flags: of the answers. source: the recorded turn that has them. growth: the task in which they may still grow.
    """

    wanted: Wanted
    progresses: Sequence[AnswerProgress]
    flags: Mapping[str, Any] = field(default_factory=dict)
    source: UUID | None = None
    growth: "asyncio.Task[None] | None" = None

    @property
    def is_growing(self) -> bool:
        return self.growth is not None and not self.growth.done()

    @property
    def has_tokens(self) -> bool:
        return any(progress.token_ids for progress in self.progresses)


@dataclass(slots=True)
class EarlierAnswers:
    """turns: by the digest of a prompt, the answers of each turn that followed it and was not taken yet."""

    turns: dict[bytes, deque[Sequence[NodeRow]]] = field(default_factory=dict)
    num_bytes: int = 0  # of memory, about

    @classmethod
    def of(cls, rows: Sequence[NodeRow], *, without: Collection[UUID] = ()) -> "EarlierAnswers":
        """Return the answers in these rows. `without`: turns whose answers are kept elsewhere."""
        tree, found = PrefixTree(), cls()
        for row in rows:
            tree.add(row.node)
        # Turns that ended come first; what they left unfinished is the end of what the attempt did.
        for key, answers in sorted(_turns(rows).items(), key=lambda item: item[1][0].node.is_partial):
            if key[1] not in without:
                found.keep(_digest(tree.path_tokens(key[0])), answers)
        return found

    def keep(self, prompt: bytes, answers: Sequence[NodeRow]) -> None:
        self.turns.setdefault(prompt, deque()).append(answers)
        self.num_bytes += _num_bytes(answers)

    def keep_all(self, other: "EarlierAnswers") -> None:
        """Keep what an attempt between them was given and did not come to ask for."""
        for prompt, turns in other.turns.items():
            for answers in turns:
                self.keep(prompt, answers)

    def leave_out(self, tree: PrefixTree) -> None:
        """Leave out the answers that the new attempt has in its tree."""
        for index in {node.parent for node in tree.nodes if node.kind is NodeKind.SAMPLED}:
            num_answers = sum(not tree.nodes[child].is_partial for child in tree.children[index])
            prompt = _digest(tree.path_tokens(index))
            while (kept := self.turns.get(prompt)) and num_answers >= len(kept[0]):
                num_answers -= len(self._pop(prompt))

    def take(self, wanted: Wanted) -> Begun | None:
        """Return the next answers to a prompt, which are then no longer kept; None if there are none that fit."""
        kept = self.turns.get(prompt := _digest(wanted.prompt_ids))
        if not kept or len(kept[0]) != wanted.num_choices or not all(_fits(row, wanted) for row in kept[0]):
            return None
        rows = self._pop(prompt)
        progresses = [_progress(row, wanted) for row in rows]
        is_whole = not any(progress.is_unfinished() for progress in progresses)
        return Begun(wanted, progresses, {RESUMED_FLAG: True} if is_whole else {}, rows[0].facts.turn_id)

    def _pop(self, prompt: bytes) -> Sequence[NodeRow]:
        answers = self.turns[prompt].popleft()
        self.num_bytes -= _num_bytes(answers)
        return answers


def _turns(rows: Sequence[NodeRow]) -> dict[_Key, list[NodeRow]]:
    turns: dict[_Key, list[NodeRow]] = {}
    for row in rows:
        if row.node.kind is NodeKind.SAMPLED:
            turns.setdefault((row.node.parent, row.facts.turn_id), []).append(row)
    return turns


def _num_bytes(answers: Sequence[NodeRow]) -> int:
    return sum(len(row.node.token_ids) + len(row.node.logprobs) for row in answers)


def _digest(prompt_ids: bytes) -> bytes:
    return hashlib.blake2b(prompt_ids, digest_size=16).digest()


def _fits(row: NodeRow, wanted: Wanted) -> bool:
    """Return whether a request may have given this answer, or its beginning if it is unfinished."""
    node, asked = row.node, wanted.asked
    # The record has neither the likeliest tokens nor the values of penalties.
    if asked.num_top or asked.reshaping or UNTRAINED_FLAG in row.facts.flags:
        return False
    if _form(asked.guide) != _form(node.guided):
        return False
    if row.facts.finish_reason == UNFINISHED:
        return 0 < node.num_tokens < wanted.max_tokens and not wanted.may_be_cut
    if row.facts.finish_reason == "length":
        return node.num_tokens == wanted.max_tokens
    return node.num_tokens <= wanted.max_tokens and (wanted.may_be_cut or _is_ended(row, wanted))


def _form(guide: Guide | GuideRecord | None) -> tuple[str, str] | None:
    return None if guide is None else (guide.kind, guide.text)


def _is_ended(row: NodeRow, wanted: Wanted) -> bool:
    return int.from_bytes(row.node.token_ids[-TOKEN_BYTES:], "little", signed=True) in wanted.end_ids


def _progress(row: NodeRow, wanted: Wanted) -> AnswerProgress:
    node = row.node
    is_cut_short = row.facts.finish_reason == "length"
    finish = FinishReason.LENGTH if is_cut_short else FinishReason.STOP
    return AnswerProgress(
        prompt_ids=wanted.prompt_ids,
        max_tokens=wanted.max_tokens,
        token_ids=bytearray(node.token_ids),
        logprobs=bytearray(node.logprobs),
        spans=node.spans,
        finish_reason=None
        if row.facts.finish_reason == UNFINISHED and not _is_ended(row, wanted)
        else finish,
        asked=wanted.asked,
        guided_by=node.guided.guided_by if node.guided else None,
    )
