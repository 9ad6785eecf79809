"""The next attempt of a slot goes on with the attempt that got farthest, unless the agent itself broke it."""

from dataclasses import dataclass

import pytest

from seamlessflow.core.environment.failures import CHARGED
from seamlessflow.core.environment.resuming import MAX_STUCK, attempt_to_resume


@dataclass(frozen=True, slots=True)
class Failed:
    failure: str
    num_turns: int


def test_the_farthest_attempt_is_resumed_and_the_newest_of_equals() -> None:
    far, equal = Failed("machine", 5), Failed("machine", 5)
    assert attempt_to_resume([Failed("setup", 0), far, Failed("engine", 2)]) is far
    assert attempt_to_resume([far, equal, Failed("grading", 1)]) is equal
    assert attempt_to_resume([]) is None


@pytest.mark.parametrize("charged", [*sorted(CHARGED), ""])
def test_nothing_before_a_failure_of_the_agent_is_resumed(charged: str) -> None:
    later = Failed("machine", 1)
    assert attempt_to_resume([Failed("machine", 5), Failed(charged, 6)]) is None
    assert attempt_to_resume([Failed("machine", 5), Failed(charged, 6), later]) is later


def test_a_judge_that_fails_at_just_this_answer_does_not_stop_the_slot_for_ever() -> None:
    stuck = [Failed("grading", 3)] * MAX_STUCK
    assert attempt_to_resume(stuck[1:]) is not None
    assert attempt_to_resume(stuck) is None
    fresh = Failed("grading", 2)
    assert attempt_to_resume([*stuck, fresh]) is fresh


def test_progress_and_lost_machines_are_no_sign_of_a_slot_that_is_stuck() -> None:
    going = [Failed("waiting", num) for num in range(MAX_STUCK + 1)]
    assert attempt_to_resume(going) is going[-1]
    lost = [Failed("machine", 3)] * (2 * MAX_STUCK)
    assert attempt_to_resume(lost) is not None
