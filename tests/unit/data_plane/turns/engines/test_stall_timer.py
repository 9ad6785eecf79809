"""The stall timer: simultaneous waits count once, and credit adds only time that was not counted yet."""

from seamlessflow.core.liveness.stall import DOUBT_S, StallWatch
from seamlessflow.data_plane.turns.engines.lifeline import Lifeline
from seamlessflow.data_plane.turns.engines.stall_timer import StallTimer


def test_turns_held_side_by_side_count_once() -> None:
    clock = StallTimer()
    clock.begin(10.0)
    clock.begin(11.0)
    clock.end(12.0)
    assert clock.held_s(13.0) == 3.0
    clock.end(14.0)
    assert clock.held_s(20.0) == 4.0
    assert (clock.is_running, clock.stretch) == (False, 1)


def test_a_credit_never_counts_a_moment_twice() -> None:
    clock = StallTimer()
    clock.begin(10.0)
    clock.end(12.0)
    clock.credit(9.0, 15.0)  # 12 to 15 is new
    clock.credit(13.0, 16.0)  # 15 to 16 is new
    clock.credit(1.0, 2.0)
    assert clock.held_s(20.0) == 6.0


def test_a_credit_ends_where_a_running_stretch_began() -> None:
    clock = StallTimer()
    clock.begin(10.0)
    clock.credit(4.0, 12.0)
    assert clock.held_s(12.0) == 8.0
    clock.end(13.0)
    assert clock.held_s(20.0) == 9.0


def test_a_cut_takes_what_is_new_and_can_be_given_back() -> None:
    clock = StallTimer(durable_s=5.0)
    clock.begin(10.0)
    taken_s = clock.cut(12.0)
    assert (taken_s, clock.held_s(12.0)) == (2.0, 5.0)
    clock.give_back(taken_s)
    assert clock.held_s(13.0) == 8.0
    clock.end(13.0)
    assert (clock.cut(14.0), clock.cut(14.0)) == (3.0, 0.0)


def test_whoever_keeps_the_account_hears_of_changes() -> None:
    heard: list[StallTimer] = []
    clock = StallTimer(on_change=heard.append)
    clock.begin(1.0)
    clock.end(2.0)
    clock.credit(1.0, 2.0)  # nothing new
    clock.credit(1.0, 3.0)
    assert heard == [clock] * 3


def test_silence_of_an_engine_counts_while_it_is_in_doubt_and_no_longer_once_it_speaks() -> None:
    clock, stall = StallTimer(), StallWatch()
    lifeline = Lifeline(lambda: 0.0, stall, num_prompt_tokens=1)
    clock.attach(lifeline)
    assert clock.doubted_s(3.0) == 0.0
    stall.listened(DOUBT_S)
    assert clock.doubted_s(3.0) == 3.0
    lifeline.heard(4.0)
    assert clock.doubted_s(4.5) == 0.0
    clock.detach(lifeline)
