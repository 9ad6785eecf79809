"""The list of checks on a GPU fits its time, names its sizes, and runs programs that exist."""

import importlib.util
from itertools import pairwise

import pytest

from tests.fixtures.repository import ROOT
from tests.gpu.checklist.plan import (
    ALL,
    DEVICES,
    MAX_PART_S,
    MAX_TOTAL_S,
    PARTS,
    PATIENCE,
    WITH_VLLM,
    Item,
    Part,
    longest_s,
)

ITEMS = [item for part in ALL.values() for item in part.items]


@pytest.mark.parametrize("part", ALL.values(), ids=lambda part: part.name)
def test_a_part_ends_within_nine_minutes_whatever_its_items_do(part: Part) -> None:
    assert longest_s(part) <= part.limit_s <= MAX_PART_S == 9 * 60
    assert PATIENCE["cuda"] == 1


def test_all_numbered_parts_end_within_28_minutes() -> None:
    assert sum(part.limit_s for part in PARTS) <= MAX_TOTAL_S == 28 * 60
    assert WITH_VLLM not in PARTS
    assert [part.name for part in PARTS] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_an_item_runs_what_exists_and_says_what_it_proves(item: Item) -> None:
    assert item.proves
    paths = [argument for argument in item.arguments if argument.startswith("tests/")]
    assert all((ROOT / path).exists() for path in paths)
    if not item.is_suite:
        module = item.arguments[1]
        assert item.arguments == ("-m", module)
        assert importlib.util.find_spec(module) is not None


def test_items_have_names_of_their_own() -> None:
    assert len({item.name for item in ITEMS}) == len(ITEMS)


@pytest.mark.parametrize(
    "name,sizes",
    [
        ("trees", ("16384", "65536", "131072")),
        ("zero", ("28", "2048", "151936")),
        ("mixture", ("8", "1024", "32")),
        ("hand_overs", ("10", "8", "512")),
        ("transports", ("2", "16")),
    ],
)
def test_sizes_are_named_for_both_devices(name: str, sizes: tuple[str, ...]) -> None:
    (item,) = [item for item in ITEMS if item.name == name]
    assert item.sizes.keys() == set(DEVICES)
    assert item.sizes["cuda"] == sizes
    assert item.command("cuda")[-len(sizes) :] == sizes
    # A processor does as many things, each no larger.
    assert len(item.sizes["cpu"]) == len(sizes)
    assert all(float(small) <= float(large) for small, large in zip(item.sizes["cpu"], sizes, strict=True))


def test_every_test_of_a_gpu_is_in_a_part() -> None:
    listed = {argument for item in ITEMS for argument in item.arguments}
    assert {f"tests/gpu/{path.name}" for path in (ROOT / "tests" / "gpu").glob("test_*.py")} <= listed
    assert "tests/contract/engine" in listed


def test_sizes_of_trees_grow() -> None:
    (trees,) = [item for item in ITEMS if item.name == "trees"]
    for sizes in trees.sizes.values():
        assert all(int(smaller) < int(larger) for smaller, larger in pairwise(sizes))
        assert all(int(size) % 64 == 0 for size in sizes)
