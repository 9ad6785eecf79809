"""Which engine serves a turn, as a pure rule. What the pool does with it is in `test_engine_pool`."""

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.placement.engine_choice import STICKY_SLACK, EngineSeen, engine_choose

NOW_S = 10.0
ENGINES = st.builds(
    EngineSeen,
    num_slots=st.integers(1, 8),
    version=st.integers(0, 2),
    is_too_old=st.booleans(),
    num_in_flight=st.integers(0, 12),
    slot_limit=st.none() | st.integers(1, 10),
    cooldown_until_s=st.sampled_from([0.0, NOW_S + 0.1]),
    is_suspected=st.booleans(),
)


def seen(num_in_flight: int) -> EngineSeen:
    return EngineSeen(num_slots=32, num_in_flight=num_in_flight)


@given(st.lists(ENGINES, max_size=5), st.integers(0, 2), st.none() | st.integers(0, 4))
def test_no_turn_goes_where_it_may_not_and_none_waits_that_need_not(
    engines: list[EngineSeen], min_version: int, number: int | None
) -> None:
    preferred = engines[number] if number is not None and number < len(engines) else None
    chosen = engine_choose(engines, min_version=min_version, preferred=preferred, now_s=NOW_S)
    able = [
        one
        for one in engines
        if one.version >= min_version
        and not one.is_suspected
        and not one.is_too_old
        and one.cooldown_until_s <= NOW_S
        and one.num_in_flight < (one.capacity if one.slot_limit is None else one.slot_limit)
    ]
    if chosen is None:
        assert not able
        return
    assert any(chosen is one for one in able)
    least = min(one.num_in_flight for one in able)
    assert chosen.num_in_flight == least or (
        chosen is preferred and chosen.num_in_flight <= least + STICKY_SLACK
    )


def test_a_session_stays_with_its_engine_until_that_is_much_busier_than_another() -> None:
    idle, own = seen(0), seen(STICKY_SLACK)
    assert engine_choose([idle, own], preferred=own, now_s=NOW_S) is own
    busier = seen(STICKY_SLACK + 1)
    assert engine_choose([idle, busier], preferred=busier, now_s=NOW_S) is idle


def test_an_engine_queues_a_quarter_of_its_slots_and_at_least_two_turns() -> None:
    assert [EngineSeen(num_slots=num).capacity for num in (1, 4, 8, 32)] == [3, 6, 10, 40]


def test_the_share_of_a_gateway_bounds_what_it_sends() -> None:
    shared = EngineSeen(num_slots=8, slot_limit=2, num_in_flight=2)
    assert engine_choose([shared], now_s=NOW_S) is None
