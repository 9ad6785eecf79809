"""When a reward counts as reached: the benchmark's own rule."""

import math

from tests.benchmarks.learners.trl_grpo import calc, reward_of
from tests.benchmarks.learning import Point, time_to


def curve(*rewards: float) -> list[Point]:
    return [Point(float(second), reward) for second, reward in enumerate(rewards, start=1)]


def test_a_single_lucky_update_is_not_reached() -> None:
    assert time_to(curve(0.1, 1.0, 0.1, 0.75, 0.85, 0.95), 0.8) == 6.0


def test_a_reward_that_never_comes_takes_for_ever() -> None:
    assert time_to(curve(0.1, 0.2, 0.3), 0.8) == math.inf
    assert time_to(curve(1.0, 1.0), 0.8) == math.inf


def test_the_peers_tool_and_reward_are_those_of_the_environment() -> None:
    assert (calc("285*966"), calc("10-12"), calc("1*")) == ("275310", "-2", "error")
    call = {"role": "assistant", "content": "5", "tool_calls": [{}]}
    assert [reward_of([said], "5") for said in ({"role": "assistant", "content": " 5 "}, call)] == [1.0, 0.0]
