"""The choice of a batch's groups, without a database."""

from uuid import UUID, uuid4

from seamlessflow.data_plane.batches.selection import Selection, groups_select, is_aged
from seamlessflow.data_plane.store.batches.batch_rows import ReadyGroup

FRESH, OLD = ReadyGroup(uuid4(), 7, 8), ReadyGroup(uuid4(), 3, 6)


def select(*ready: ReadyGroup, num_fresh: dict[UUID, int] | None = None) -> Selection:
    return groups_select(ready, num_fresh or {}, policy_version=8, oldest_allowed=5, num_needed=2)


def test_groups_within_the_bound_train_in_their_order() -> None:
    other = ReadyGroup(uuid4(), 8, 8)
    selection = select(FRESH, other)
    assert list(selection.trainable) == [FRESH, other]
    assert list(selection.stale) == []


def test_a_group_with_too_few_fresh_sessions_is_stale_and_says_why() -> None:
    selection = select(OLD, FRESH, num_fresh={OLD.group_id: 1})
    assert list(selection.trainable) == [FRESH]
    (stale,) = selection.stale
    assert stale.group_id == OLD.group_id
    assert stale.reason == (
        "its oldest token was sampled by version 3, but the oldest version that may train now is 5 "
        "(sessions within the bound: 1, needed: 2)"
    )


def test_an_aged_group_with_enough_fresh_sessions_trains() -> None:
    assert list(select(OLD, num_fresh={OLD.group_id: 2}).trainable) == [OLD]


def test_a_group_of_no_known_version_is_stale() -> None:
    (stale,) = select(ReadyGroup(uuid4(), None, None)).stale
    assert stale.reason == "it has no sampled token of a known version"


def test_a_group_of_a_version_that_the_trainer_lacks_waits() -> None:
    selection = select(ReadyGroup(uuid4(), 8, 9))
    assert (list(selection.trainable), list(selection.stale)) == ([], [])


def test_a_bound_by_token_is_passed_only_when_all_tokens_are_too_old() -> None:
    assert is_aged(OLD, 5, is_by_token=False)
    assert not is_aged(OLD, 5, is_by_token=True)
    assert is_aged(OLD, 7, is_by_token=True)
