"""When a child is given up: after its limit of silence, counted only while its supervisor is
running."""

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.liveness.pulse import LONGEST_TICK_S, Pulse


def test_a_child_without_a_sign_of_life_is_lost_at_its_limit_and_a_sign_restarts_the_count() -> None:
    pulse = Pulse(limit_s=4.0)
    pulse.listened(2.0)
    pulse.listened(1.9)
    assert not pulse.is_lost
    pulse.beat()
    pulse.listened(2.0)
    pulse.listened(2.0)
    assert pulse.is_lost


@given(st.floats(0.0, 1e6))
def test_a_supervisor_that_was_stopped_loses_no_child_by_it(stopped_s: float) -> None:
    pulse = Pulse(limit_s=2 * LONGEST_TICK_S)
    pulse.listened(stopped_s)
    assert not pulse.is_lost
