"""Which cores each device of a host gets."""

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.types.device_cores import assign_cores, split_cores


def test_two_sockets_of_two_gpus_each_with_hyperthreads() -> None:
    """Cores 0-3 and 4-7 are sockets; core n + 8 is the second thread of core n."""
    first, second = frozenset({0, 1, 2, 3, 8, 9, 10, 11}), frozenset({4, 5, 6, 7, 12, 13, 14, 15})
    siblings = {frozenset({core, core + 8}) for core in range(8)}

    assigned = assign_cores([first, first, second, second], siblings)

    assert assigned == [[0, 1, 8, 9], [2, 3, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15]]


def test_threads_of_a_core_are_parted_only_if_there_are_fewer_cores_than_devices() -> None:
    assert split_cores({0, 1}, 2, [frozenset({0, 1})]) == [[0], [1]]


def test_more_devices_than_cores_share_them() -> None:
    assert split_cores({4, 5}, 3) == [[4], [5], [4]]
    assert split_cores(set(), 2) == [[], []]


@given(cores=st.sets(st.integers(0, 63), min_size=1), num_groups=st.integers(1, 16))
def test_every_core_belongs_to_exactly_one_group(cores: set[int], num_groups: int) -> None:
    groups = split_cores(cores, num_groups)
    assert len(groups) == num_groups
    if len(cores) >= num_groups:
        assert sorted(core for group in groups for core in group) == sorted(cores)
        assert max(map(len, groups)) - min(map(len, groups)) <= 1
    else:
        assert {core for group in groups for core in group} == cores
