"""Keys stay with their owners when members come and go, and are spread evenly."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.placement.rendezvous import rendezvous_owner

MEMBERS = st.sets(st.text(min_size=1, max_size=30), min_size=2, max_size=8)
KEYS = [UUID(int=number).bytes for number in range(2000)]


@given(MEMBERS, st.binary(min_size=16, max_size=16))
def test_the_order_of_the_members_does_not_matter(members: set[str], key: bytes) -> None:
    assert rendezvous_owner(key, sorted(members)) == rendezvous_owner(key, sorted(members, reverse=True))


@given(MEMBERS, st.lists(st.binary(min_size=16, max_size=16), max_size=50))
def test_only_the_keys_of_a_member_that_leaves_move(members: set[str], keys: list[bytes]) -> None:
    leaver = min(members)
    for key in keys:
        before = rendezvous_owner(key, members)
        after = rendezvous_owner(key, members - {leaver})
        assert after == before or before == leaver


@given(MEMBERS, st.text(min_size=1), st.lists(st.binary(min_size=16, max_size=16), max_size=50))
def test_a_member_that_joins_takes_keys_only_for_itself(
    members: set[str], joiner: str, keys: list[bytes]
) -> None:
    for key in keys:
        before, after = rendezvous_owner(key, members), rendezvous_owner(key, members | {joiner})
        assert after in (before, joiner)


@pytest.mark.parametrize("num_members", [2, 3, 5])
def test_keys_are_spread_evenly(num_members: int) -> None:
    members = [f"http://10.0.0.{number}:8100" for number in range(num_members)]
    counts = Counter(rendezvous_owner(key, members) for key in KEYS)
    equal = len(KEYS) / num_members
    assert all(0.85 * equal < counts[member] < 1.15 * equal for member in members), counts


def test_without_members_nobody_owns_a_key() -> None:
    with pytest.raises(ValueError, match="empty"):
        rendezvous_owner(KEYS[0], [])
