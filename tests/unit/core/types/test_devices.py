"""How people name devices, and what is refused."""

import pytest

from seamlessflow.core.types.devices import (
    InvalidDevices,
    core_set_id,
    parse_core_sets,
    parse_gpus,
    select_core_sets,
    select_gpus,
)
from tests.fixtures.machine_devices import gpu

GPUS = [gpu(number) for number in range(4)]


@pytest.mark.parametrize(
    "text,sets",
    [
        ("cpu:0", ((0,),)),
        ("cpu:0,cpu:1", ((0,), (1,))),
        ("cpu:0-3", ((0, 1, 2, 3),)),
        (" cpu:0-1+8-9 , cpu:2+3", ((0, 1, 8, 9), (2, 3))),
    ],
)
def test_core_sets_are_read(text: str, sets: tuple[tuple[int, ...], ...]) -> None:
    assert parse_core_sets(text) == sets


@pytest.mark.parametrize(
    "text,problem",
    [
        ("cpu:0,cpu:0", "core 0 is named twice"),
        ("cpu:0-2,cpu:2", "core 2 is named twice"),
        ("cpu:", "'' is no number or range"),
        ("cpu:3-1", "'3-1' is no number or range"),
        ("cpu:0,", "has an empty name"),
        ("cpu:0,1", "'1' is not a core set like the others"),
        ("cpu:0-99999999", "is no number or range"),
    ],
)
def test_core_sets_that_cannot_be_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidDevices, match=problem):
        parse_core_sets(text)


def test_the_name_of_a_core_set_reads_back_as_the_same_cores() -> None:
    assert core_set_id([9, 0, 1, 2, 8, 5]) == "cpu:0-2+5+8-9"
    assert parse_core_sets(core_set_id([9, 0, 1, 2, 8, 5])) == ((0, 1, 2, 5, 8, 9),)


def test_all_cores_are_one_device_unless_sets_are_named() -> None:
    (whole,) = select_core_sets(None, available={2, 3, 4}, name="any", memory_bytes=300)
    assert (whole.id, whole.cores, whole.memory_bytes) == ("cpu:2-4", [2, 3, 4], 300)

    first, second = select_core_sets("cpu:2,cpu:3-4", available={2, 3, 4}, name="any", memory_bytes=300)
    assert [first.memory_bytes, second.memory_bytes] == [100, 200]


def test_a_core_that_the_host_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(InvalidDevices, match=r"there is no core 7; available: cpu:0-1"):
        select_core_sets("cpu:0,cpu:7", available={0, 1}, name="any", memory_bytes=1)


@pytest.mark.parametrize(
    "text,names", [("0-2", ("0", "1", "2")), ("0,2", ("0", "2")), ("GPU-ab, 1", ("GPU-ab", "1"))]
)
def test_gpus_are_read(text: str, names: tuple[str, ...]) -> None:
    assert parse_gpus(text) == names


def test_gpus_are_chosen_by_number_uuid_or_its_beginning_in_the_order_given() -> None:
    assert select_gpus(None, found=GPUS) == tuple(GPUS)
    assert select_gpus(f"3,{GPUS[1].id},GPU-00000000", found=GPUS) == (GPUS[3], GPUS[1], GPUS[0])


@pytest.mark.parametrize(
    "text,problem",
    [
        ("4", r"there is no GPU 4; found: 0 \(GPU-0"),
        ("GPU-ffff", "there is no GPU GPU-ffff"),
        ("GPU-0000000", "GPU-0000000 stands for several GPUs"),
        ("0,0", "GPU 0 is named twice"),
        ("0,GPU-00000000", "GPU GPU-00000000-1111-2222-3333-444444444444 is named twice"),
        ("0,cpu:1", "'cpu:1' is a core set, but others are GPUs"),
        ("all", "'all' is no number or range"),
    ],
)
def test_gpus_that_cannot_be_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidDevices, match=problem):
        select_gpus(text, found=GPUS)


def test_a_host_without_gpus_says_so() -> None:
    with pytest.raises(InvalidDevices, match="CUDA_VISIBLE_DEVICES '0': there is no GPU 0; found: none"):
        select_gpus("0", found=[], source="CUDA_VISIBLE_DEVICES")
