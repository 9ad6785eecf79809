"""The answers of a failed attempt are given once, in their order, to just the requests that they were sampled for.

Simulated slots: a policy that samples anew each time, an agent whose requests depend only on the answers, and failures
that grow with the length. Whatever fails, the session with an outcome is the one that would have run without failures.
"""

import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from uuid import uuid4

import pytest

from seamlessflow.core.environment.resuming import attempt_to_resume
from seamlessflow.core.guidance.guide import Guide, GuideKind
from seamlessflow.core.trajectory.answer_progress import AnswerProgress, FinishReason
from seamlessflow.core.trajectory.asked_sampling import AskedSampling
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind, PrefixTree
from seamlessflow.data_plane.store.turns.node_rows import NodeFacts, NodeRow, SessionKey
from seamlessflow.data_plane.turns.trajectory_manager.earlier_answers import (
    UNTRAINED_FLAG,
    Begun,
    EarlierAnswers,
    Wanted,
)

END = 2
BUDGET = 16
KINDS = ("machine", "setup", "engine", "grading")
PLAIN = AskedSampling()


def packed(*tokens: int) -> bytes:
    return struct.pack(f"<{len(tokens)}i", *tokens)


def wanted(prompt_ids: bytes, **fields: object) -> Wanted:
    asked = Wanted(prompt_ids, PLAIN, BUDGET, num_choices=1, end_ids=(END,))
    return replace(asked, **fields)  # type: ignore[arg-type]


class Session:
    """A session's tree as its rows have it."""

    def __init__(self) -> None:
        self.key = SessionKey(uuid4(), date(2026, 1, 1), uuid4(), uuid4())
        self.tree = PrefixTree()
        self.rows: list[NodeRow] = []

    def add(self, kind: NodeKind, token_ids: bytes, **fields: object) -> None:
        parent = len(self.rows) - 1 if self.rows else None
        node = Node(len(self.rows), parent, kind, token_ids, (), 0)
        self.put(replace(node, **fields))  # type: ignore[arg-type]

    def put(self, node: Node, **facts: object) -> None:
        self.tree.add(node)
        self.rows.append(NodeRow(self.key, node, NodeFacts([], uuid4(), **facts)))  # type: ignore[arg-type]

    def prompt(self, *tokens: int) -> bytes:
        self.add(NodeKind.PROMPT if self.rows else NodeKind.ROOT, packed(*tokens))
        return self.tree.path_tokens(len(self.rows) - 1)

    def answer(self, progress: AnswerProgress) -> None:
        node = {"logprobs": bytes(progress.logprobs), "spans": progress.spans}
        self.add(NodeKind.SAMPLED, bytes(progress.token_ids), **node)

    @property
    def num_turns(self) -> int:
        return sum(row.node.kind is NodeKind.SAMPLED for row in self.rows)


class Policy:
    """Samples another answer each time; its version rises as it is trained."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.num_sampled = 0

    def __call__(self, prompt_ids: bytes) -> AnswerProgress:
        self.num_sampled += 1
        tokens = [self._chance.randrange(3, 100) for _ in range(self._chance.randrange(1, 4))]
        answer = packed(*tokens, END)
        spans = (0, self.num_sampled // 3)
        return AnswerProgress(
            prompt_ids, BUDGET, bytearray(answer), bytearray(answer[::-1]), spans, FinishReason.STOP
        )


@dataclass(frozen=True, slots=True)
class Failed:
    failure: str
    num_turns: int
    session: Session


class Failure(Exception):
    pass


def played(
    session: Session, policy: Policy, earlier: EarlierAnswers | None, hazard: random.Random | None
) -> None:
    """Play until an answer begins with a low token; each step may fail, and so may the grading."""
    prompt_ids = session.prompt(1)
    while True:
        if hazard is not None and hazard.random() < 0.2:
            raise Failure
        given = earlier.take(wanted(prompt_ids)) if earlier else None
        session.answer(given.progresses[0] if given else policy(prompt_ids))
        said = session.rows[-1].node.token_ids
        if said[0] < 20:
            break
        prompt_ids = session.prompt(said[0] + 1000, 7)
    if hazard is not None and hazard.random() < 0.2:
        raise Failure


def resumed(policy: Policy, hazard: random.Random) -> Session:
    failed: list[Failed] = []
    while True:
        session, attempt = Session(), attempt_to_resume(failed)
        earlier = EarlierAnswers.of(attempt.session.rows) if attempt else None
        try:
            played(session, policy, earlier, hazard)
        except Failure:
            failed.append(Failed(hazard.choice(KINDS), session.num_turns, session))
        else:
            return session


@pytest.mark.parametrize("seed", range(40))
def test_failures_change_neither_tokens_nor_logprobs_nor_versions(seed: int) -> None:
    clean, policy = Session(), Policy(seed)
    played(clean, policy, None, None)
    again = Policy(seed)
    session = resumed(again, random.Random(seed))
    assert [row.node for row in session.rows] == [row.node for row in clean.rows]
    assert again.num_sampled == policy.num_sampled, "an answer was sampled twice"


def recorded(*nodes: Mapping[str, object], finish: str = "stop", flags: Sequence[str] = ()) -> EarlierAnswers:
    """Return the answers of an attempt with these nodes after one prompt."""
    session = Session()
    session.prompt(1)
    for fields in nodes:
        answer = Node(len(session.rows), 0, NodeKind.SAMPLED, packed(5, END), (), 0)
        reason = "abort" if fields.get("is_partial") else finish
        session.put(replace(answer, **fields), finish_reason=reason, flags={flag: ["x"] for flag in flags})  # type: ignore[arg-type]
    return EarlierAnswers.of(session.rows)


def said(begun: Begun | None) -> bytes | None:
    return None if begun is None else bytes(begun.progresses[0].token_ids)


def test_repeats_of_a_request_get_the_answers_in_their_order_and_none_twice() -> None:
    earlier = recorded({}, {"token_ids": packed(6, END)})
    assert earlier.num_bytes > 0
    given = [said(earlier.take(wanted(packed(1)))) for _ in range(3)]
    assert given == [packed(5, END), packed(6, END), None]
    assert earlier.num_bytes == 0


def test_what_the_new_attempt_has_is_not_given_again() -> None:
    earlier, session = recorded({}, {"token_ids": packed(6, END)}), Session()
    session.prompt(1)
    session.answer(AnswerProgress(packed(1), BUDGET, bytearray(packed(5, END))))
    earlier.leave_out(session.tree)
    assert said(earlier.take(wanted(packed(1)))) == packed(6, END)


GUIDE = Guide(GuideKind.REGEX, "[0-9]+", (END,))


@pytest.mark.parametrize(
    "other",
    [
        {"prompt_ids": packed(1, 1)},
        {"num_choices": 2},
        {"max_tokens": 1},
        {"asked": AskedSampling(guide=GUIDE)},
        {"asked": AskedSampling(num_top=1)},
        {"asked": AskedSampling(reshaping={"presence_penalty": 1.0})},
    ],
)
def test_another_request_is_given_nothing(other: dict[str, object]) -> None:
    earlier = recorded({})
    assert earlier.take(wanted(**{"prompt_ids": packed(1), **other})) is None  # type: ignore[arg-type]
    assert earlier.take(wanted(packed(1))) is not None


def test_an_answer_that_was_cut_is_given_only_where_it_would_be_cut_again() -> None:
    cut = {"token_ids": packed(5, 6)}
    assert recorded(cut).take(wanted(packed(1))) is None
    assert recorded(cut).take(wanted(packed(1), stop=("x",))) is not None
    assert recorded(cut, finish="length").take(wanted(packed(1))) is None
    answers = recorded(cut, finish="length").take(wanted(packed(1), max_tokens=2))
    assert answers is not None
    assert answers.progresses[0].finish_reason is FinishReason.LENGTH
    assert recorded({}, flags=[UNTRAINED_FLAG]).take(wanted(packed(1))) is None


def test_an_unfinished_answer_comes_last_and_goes_on() -> None:
    earlier = recorded({"token_ids": packed(8, 9), "is_partial": True}, {})
    assert said(earlier.take(wanted(packed(1)))) == packed(5, END)
    answers = earlier.take(wanted(packed(1)))
    assert answers is not None
    assert answers.progresses[0].is_unfinished()
    assert answers.progresses[0].next_prompt == packed(1, 8, 9)
