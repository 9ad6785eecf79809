"""The history checker of the faults finds each kind of violation, and none in an intact history."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.faults.checks import faults_found
from tests.benchmarks.faults.history import (
    Answer,
    Attempt,
    Group,
    History,
    Interval,
    Job,
    JobMove,
    MachineEdit,
    Phase,
    PhaseMove,
    Session,
    Version,
)

WHOLE = History(
    jobs=[Job("job", "completed", 2, 2, "key", 32, (0.0, 1.0))],
    moves=[
        JobMove("job", "", "queued"),
        JobMove("job", "queued", "starting"),
        JobMove("job", "starting", "running"),
        JobMove("job", "running", "completed"),
    ],
    phases=[Phase("one", "job", "alpha", 1, "failed"), Phase("two", "job", "alpha", 2, "ended")],
    phase_moves=[
        PhaseMove("alpha", "one", "leased"),
        PhaseMove("alpha", "one", "active"),
        PhaseMove("alpha", "one", "failed"),
        PhaseMove("alpha", "two", "leased"),
        PhaseMove("alpha", "two", "ended"),
    ],
    versions=[Version("job", 0, None, 0), Version("job", 1, 1, 1), Version("job", 2, 2, 2)],
    groups=[Group("job", "g", "batched", 1), Group("job", "h", "dropped", None)],
    sessions=[
        Session("job", "s", "g", 0, "closed", 1.0, False),
        Session("job", "t", "g", 0, "failed", None, False),
    ],
    answers=[
        Answer("job", "s", "turn", "request", 5, (0, 1, 3, 2), False),
        Answer("job", "s", "other", "request", 2, (0, 1), True),
    ],
    intervals=[Interval("alpha", 0.0, 1.0), Interval("alpha", 1.0, 2.5)],
    edits=[MachineEdit("alpha", "retag 1")],
    attempts=[
        Attempt("submit", "key", True),
        Attempt("submit", "never", None),
        Attempt("retag", "retag 1", True),
        Attempt("retag", "retag 2", False),
    ],
)


def test_an_intact_history_has_no_faults() -> None:
    assert faults_found(WHOLE) == []


VIOLATIONS: dict[str, tuple[Callable[[History], History], str]] = {
    "two owners": (
        lambda h: replace(h, phase_moves=[move for move in h.phase_moves if move.to_state != "failed"]),
        "alpha was leased to two before one had ended",
    ),
    "a fence given twice": (
        lambda h: replace(h, phases=[replace(phase, fence=1) for phase in h.phases]),
        "alpha gave the fence 1 2 times",
    ),
    "two ends": (
        lambda h: replace(h, moves=[*h.moves, JobMove("job", "completed", "cancelled")]),
        "job entered a terminal state 2 times",
    ),
    "no end": (lambda h: replace(h, moves=h.moves[:-1]), "job entered a terminal state 0 times"),
    "a gap in the moves": (
        lambda h: replace(h, moves=[*h.moves[:1], *h.moves[2:]]),
        "job left starting after it had become queued",
    ),
    "a row that says otherwise": (
        lambda h: replace(h, jobs=[replace(h.jobs[0], state="cancelled")]),
        "job is cancelled, its last event says completed",
    ),
    "a machine kept": (
        lambda h: replace(h, phases=[h.phases[0], replace(h.phases[1], state="active")]),
        "job is over and still holds alpha",
    ),
    "a batch applied twice": (
        lambda h: replace(h, versions=[*h.versions[:2], Version("job", 2, 1, 2)]),
        "job applied the batches [1, 1]",
    ),
    "a version missing": (
        lambda h: replace(h, versions=[h.versions[0], h.versions[2]]),
        "job has the versions [2]",
    ),
    "an old fence": (
        lambda h: replace(h, versions=[*h.versions[:2], Version("job", 2, 2, 0)]),
        "job took version 2 from the old fence 0",
    ),
    "too few updates": (
        lambda h: replace(h, jobs=[replace(h.jobs[0], num_updates=3)]),
        "job completed with 2 of 3 updates",
    ),
    "a batched group without a batch": (
        lambda h: replace(h, groups=[Group("job", "g", "batched", None)]),
        "group g is batched with batch None",
    ),
    "a place rewarded twice": (
        lambda h: replace(h, sessions=[*h.sessions, Session("job", "u", "g", 0, "closed", 0.0, False)]),
        "place 0 of group g was rewarded 2 times",
    ),
    "a reward that cannot be": (
        lambda h: replace(h, sessions=[replace(h.sessions[0], reward=777.0)]),
        "session s has the reward 777",
    ),
    "a timeout": (
        lambda h: replace(h, sessions=[replace(h.sessions[0], is_timeout=True)]),
        "session s ended as a timeout",
    ),
    "spans that overlap": (
        lambda h: replace(h, answers=[replace(h.answers[0], spans=(0, 1, 0, 2))]),
        "an answer of s has the spans [0, 1, 0, 2]",
    ),
    "spans beyond the end": (
        lambda h: replace(h, answers=[replace(h.answers[0], spans=(0, 1, 5, 2))]),
        "an answer of s has the spans [0, 1, 5, 2]",
    ),
    "an answer too long": (
        lambda h: replace(h, answers=[replace(h.answers[0], num_tokens=33)]),
        "an answer of s has 33 tokens",
    ),
    "a turn twice": (
        lambda h: replace(h, answers=[replace(answer, is_partial=False) for answer in h.answers]),
        "one request of s was recorded as 2 turns",
    ),
    "time without a cause": (
        lambda h: replace(h, intervals=[h.intervals[0], Interval("alpha", 1.5, 2.5)]),
        "alpha's ledger has nothing for 0.500 s",
    ),
    "time counted twice": (
        lambda h: replace(h, intervals=[h.intervals[0], Interval("alpha", 0.75, 2.5)]),
        "alpha's ledger has two intervals at once for 0.250 s",
    ),
    "a submission lost": (
        lambda h: replace(h, attempts=[Attempt("submit", "gone", True)]),
        "submission gone was acknowledged and is not there",
    ),
    "a refused edit made": (
        lambda h: replace(h, attempts=[Attempt("retag", "retag 1", False)]),
        "edit 'retag 1' was refused and is there",
    ),
    "an edit made twice": (
        lambda h: replace(h, edits=[*h.edits, *h.edits]),
        "edit 'retag 1' was carried out 2 times",
    ),
}


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_violation_is_found_and_named(violation: str) -> None:
    broken, said = VIOLATIONS[violation]
    assert said in faults_found(broken(WHOLE))


@given(st.lists(st.floats(0.01, 50), min_size=2, max_size=12), st.data())
def test_any_gap_or_overlap_of_a_ledger_is_found(lengths: list[float], data: st.DataObject) -> None:
    ends = [sum(lengths[: count + 1]) for count in range(len(lengths))]
    intervals = [Interval("alpha", start, end) for start, end in zip([0.0, *ends], ends, strict=False)]
    assert faults_found(History(intervals=intervals)) == []

    place = data.draw(st.integers(1, len(intervals) - 1))
    shift_s = data.draw(st.sampled_from((-0.008, 0.008)))
    moved = [
        Interval("alpha", interval.started_at + shift_s * (at == place), interval.ended_at)
        for at, interval in enumerate(intervals)
    ]
    assert len(faults_found(History(intervals=moved))) == 1


@given(st.permutations(range(6)))
def test_the_order_in_which_rows_are_read_changes_nothing(order: list[int]) -> None:
    intervals = [Interval("alpha", float(at), float(at + 1)) for at in order]
    assert faults_found(History(intervals=intervals)) == []
