"""A job pauses when its sessions end badly together, with the evidence, and not because its tasks are hard."""

import random

import pytest

from seamlessflow.core.environment.breaker import FIRST_EQUAL, LATER_EQUAL, RECENT, End, breach_of

GOOD = End("g0", "alpha")
SLOW = End("g0", "alpha", is_timeout=True)


def crashes(num: int, *, failure: str = "agent", groups: int = 4) -> list[End]:
    return [
        End(f"g{i % groups}", "alpha", failure, reason=f"agent.py (pid {4000 + i}) exited with code 2")
        for i in range(num)
    ]


def test_the_first_equal_failures_pause_a_job_at_once() -> None:
    breach = breach_of(crashes(FIRST_EQUAL))
    assert breach is not None
    assert f"the first {FIRST_EQUAL} sessions failed with the same error (agent): agent.py" in breach
    assert breach_of(crashes(FIRST_EQUAL - 1)) is None


def test_a_machine_that_went_does_not_hide_the_error_of_the_agent() -> None:
    lost = [End("g9", "alpha", "machine", reason="its runner is gone")] * 200
    assert "agent.py" in (breach_of([*lost, *crashes(FIRST_EQUAL)]) or "")
    assert breach_of(lost) is None


def test_one_bad_task_of_a_job_that_works_pauses_nothing() -> None:
    assert breach_of([*crashes(LATER_EQUAL + 9, groups=1), GOOD]) is None
    assert breach_of([*crashes(LATER_EQUAL + 9), GOOD]) is not None


def test_different_failures_are_not_one_cause() -> None:
    ends = [End("g", "alpha", "agent", reason=reason) for reason in ("x", "y") * FIRST_EQUAL]
    assert breach_of(ends) is None


def test_a_judge_that_fails_half_of_the_sessions_is_named() -> None:
    failed = End("g", "alpha", "grading", reason="the grading did not end within 120 s")
    assert "the judge failed 16 of the last 32" in (breach_of([failed, GOOD] * (RECENT // 2)) or "")
    assert breach_of([failed, GOOD, GOOD] * RECENT) is None


@pytest.mark.parametrize("others", ["elsewhere", "before"])
def test_timeouts_that_rise_together_on_one_machine_are_named(others: str) -> None:
    usual = [End("g1", "beta" if others == "elsewhere" else "alpha")] * RECENT
    breach = breach_of([SLOW, GOOD] * (RECENT // 2) + usual)
    assert breach is not None
    assert "50% of the last 32 sessions on machine alpha timed out" in breach
    assert others in breach


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_tasks_that_are_hard_everywhere_pause_nothing(share: float) -> None:
    chance = random.Random(7)
    for _ in range(50):
        ends = [
            End(f"g{i // 8}", chance.choice(("alpha", "beta")), is_timeout=chance.random() < share)
            for i in range(256)
        ]
        assert breach_of(ends) is None
