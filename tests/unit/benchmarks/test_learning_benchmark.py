"""The benchmark's own rule for when a reward counts as reached."""

import math

from tests.benchmarks.learners.trl_grpo import calc, reward_of
from tests.benchmarks.learning import Point, curves_table, sample_of, time_to


def curve(*rewards: float) -> list[Point]:
    return [Point(float(second), reward) for second, reward in enumerate(rewards, start=1)]


def test_a_single_lucky_update_does_not_reach_the_reward() -> None:
    assert time_to(curve(0.1, 1.0, 0.1, 0.75, 0.85, 0.95), 0.8) == 6.0


def test_a_reward_that_is_never_reached_takes_forever() -> None:
    assert time_to(curve(0.1, 0.2, 0.3), 0.8) == math.inf
    assert time_to(curve(1.0, 1.0), 0.8) == math.inf


def test_time_before_the_curves_clock_counts_in_one_figure_only() -> None:
    sample = sample_of(curve(0.1, 0.8, 0.8, 0.8), seconds_before=10.0)
    assert (sample["time"], sample["time_from_up"], sample["updates"]) == (4.0, 14.0, 4)
    assert (sample["first"], sample["time_after_first"]) == (1.0, 3.0)


def test_a_curve_shows_what_its_newest_updates_reached() -> None:
    slow = [Point(5.0, 0.2), Point(7.0, 0.4)]
    table = curves_table({"quick": [curve(0.0, 0.5, 1.0, 0.9)], "slow": [slow]}, ["quick", "slow"])
    assert table.splitlines() == [
        "| reward at | 4 s | 8 s |",
        "| --- | --- | --- |",
        "| quick | 0.80 | 0.80 |",
        "| slow | - | 0.30 |",
    ]


def test_the_peers_tool_and_reward_are_those_of_the_environment() -> None:
    assert (calc("285*966"), calc("10-12"), calc("1*")) == ("275310", "-2", "error")
    call = {"role": "assistant", "content": "5", "tool_calls": [{}]}
    assert [reward_of([said], "5") for said in ({"role": "assistant", "content": " 5 "}, call)] == [1.0, 0.0]
