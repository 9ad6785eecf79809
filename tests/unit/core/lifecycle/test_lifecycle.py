"""The tables of allowed moves between states."""

from collections.abc import Callable
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.lifecycle.groups import BATCH_MOVES, EVALUATION_MOVES, GROUP_MOVES, SESSION_MOVES
from seamlessflow.core.lifecycle.jobs import (
    ACTIVE_JOB_STATES,
    JOB_MOVES,
    TERMINAL_JOB_STATES,
    DesiredJobState,
    JobState,
)
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PHASE_MOVES, PhaseState
from seamlessflow.core.lifecycle.table import IllegalMove, TransitionTable

TABLES = [JOB_MOVES, PHASE_MOVES, GROUP_MOVES, SESSION_MOVES, BATCH_MOVES, EVALUATION_MOVES]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.kind)
def test_each_table_lists_exactly_the_states(table: TransitionTable[StrEnum]) -> None:
    states = set(type(next(iter(table.moves))))

    assert set(table.moves) == states
    assert set().union(*table.moves.values()) <= states


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.kind)
def test_every_state_leads_to_a_terminal_one(table: TransitionTable[StrEnum]) -> None:
    reaching = set(table.terminal)
    while True:
        more = {state for state, targets in table.moves.items() if targets & reaching} - reaching
        if not more:
            break
        reaching |= more

    assert reaching == set(table.moves)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.kind)
def test_sources_is_the_inverse_of_moves(table: TransitionTable[StrEnum]) -> None:
    for target in table.moves:
        assert table.sources(target) == {state for state in table.moves if table.allows(state, target)}


@given(st.lists(st.sampled_from(JobState), max_size=30))
def test_a_job_reaches_at_most_one_terminal_state_whatever_is_tried(moves: list[JobState]) -> None:
    state, ends = JobState.QUEUED, []
    for move in moves:
        if JOB_MOVES.allows(state, move):
            state = move
            ends += [state] if state in TERMINAL_JOB_STATES else []

    assert len(ends) <= 1


def test_job_states_fall_into_waiting_active_and_terminal() -> None:
    waiting = {JobState.QUEUED, JobState.PAUSED}

    assert waiting | ACTIVE_JOB_STATES | TERMINAL_JOB_STATES == set(JobState)
    assert {"run", "pause", "cancel"} == set(DesiredJobState)


@pytest.mark.parametrize("end", [PhaseState.ENDED, PhaseState.FAILED])
def test_every_live_phase_may_end_or_fail_and_none_returns(end: PhaseState) -> None:
    assert PHASE_MOVES.sources(end) == LIVE_PHASE_STATES
    assert end in PHASE_MOVES.terminal


def test_a_draining_phase_never_serves_again() -> None:
    assert not PHASE_MOVES.allows(PhaseState.DRAINING, PhaseState.ACTIVE)


def test_an_illegal_move_says_what_is_allowed() -> None:
    check: Callable[[JobState, JobState], None] = JOB_MOVES.check
    with pytest.raises(
        IllegalMove, match=r"from paused to running; from paused it may go to cancelled, queued"
    ):
        check(JobState.PAUSED, JobState.RUNNING)
    with pytest.raises(IllegalMove, match="terminal"):
        check(JobState.COMPLETED, JobState.RUNNING)
