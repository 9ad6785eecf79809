"""What is published of growing answers: each token once, in bounded portions, again after a stop string."""

from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np

from seamlessflow.core.protocol.live_events import GrowingAnswer
from seamlessflow.core.trajectory.answer_progress import AnswerProgress, TokenChunk
from seamlessflow.core.trajectory.prefix_tree import NodeKind, PrefixTree
from seamlessflow.data_plane.live.progress_feed import MAX_TOKENS_PER_ROUND, group_gains


def turn_make(num_choices: int = 1) -> Any:
    plan = SimpleNamespace(
        parent=None, digests=(b"d",), context=b"", kind=NodeKind.ROOT, new_ids=b"\0" * 12, messages=[{"role": "user"}]
    )  # fmt: skip
    session = SimpleNamespace(
        tree=PrefixTree(), key=SimpleNamespace(session_id=uuid4(), job_id=uuid4()), turns={}
    )
    choices = [
        SimpleNamespace(index=index, progress=AnswerProgress(prompt_ids=b"", max_tokens=10**6))
        for index in range(num_choices)
    ]
    return SimpleNamespace(turn_id=uuid4(), session=session, plan=plan, choices=choices, request_digest=b"r")


def grow(turn: Any, num_tokens: int, *, version: int = 3, choice: int = 0) -> None:
    progress = turn.choices[choice].progress
    ids = np.arange(progress.num_tokens, progress.num_tokens + num_tokens, dtype="<i4")
    progress.add(TokenChunk(ids.tobytes(), np.full(num_tokens, -0.5, "<f4").tobytes(), (0, version)))


def ids_of(gain: GrowingAnswer) -> list[int]:
    return list(map(int, np.frombuffer(gain.token_ids, "<i4")))


def test_each_token_is_told_once() -> None:
    turn = turn_make()
    grow(turn, 3)
    (first,), said = group_gains([turn], {})
    assert (first.start, ids_of(first), first.prompt is not None) == (0, [0, 1, 2], True)
    assert group_gains([turn], said)[0] == []
    grow(turn, 2, version=4)
    (second,), said = group_gains([turn], said)
    assert (second.start, ids_of(second), second.spans, second.prompt) == (3, [3, 4], [0, 3, 3, 4], None)
    grow(turn, 1, version=4)
    turn.session.turns[b"r"] = turn.turn_id
    (end,), said = group_gains([], said)
    assert (end.start, ids_of(end), end.is_over, end.is_recorded) == (5, [5], True, True)
    assert said == {}


def test_a_turn_without_a_token_is_told_once() -> None:
    turn = turn_make()
    (gain,), said = group_gains([turn], {})
    assert (gain.start, gain.token_ids) == (0, b"")
    assert group_gains([turn], said)[0] == []


def test_a_hand_over_is_told_without_a_new_token() -> None:
    turn = turn_make()
    grow(turn, 4)
    _, said = group_gains([turn], {})
    turn.choices[0].progress.moved()
    (gain,), _ = group_gains([turn], said)
    assert (gain.handover_at, gain.token_ids) == ([4], b"")


def test_a_round_is_bounded_and_the_rest_follows() -> None:
    turn = turn_make(num_choices=2)
    grow(turn, MAX_TOKENS_PER_ROUND + 5)
    grow(turn, 7, choice=1)
    told: dict[int, list[int]] = {0: [], 1: []}
    said: Any = {}
    num_rounds = 0
    while (gains_said := group_gains([turn], said))[0]:
        gains, said = gains_said
        assert sum(len(ids_of(gain)) for gain in gains) <= MAX_TOKENS_PER_ROUND
        for gain in gains:
            assert gain.start == len(told[gain.choice])
            told[gain.choice] += ids_of(gain)
        num_rounds += 1
    assert (len(told[0]), len(told[1]), num_rounds) == (MAX_TOKENS_PER_ROUND + 5, 7, 2)


def test_tokens_that_a_stop_string_cut_are_followed_by_what_is_left() -> None:
    turn = turn_make()
    grow(turn, 10)
    _, said = group_gains([turn], {})
    turn.choices[0].progress.cut(6)
    assert group_gains([turn], said)[0] == []
