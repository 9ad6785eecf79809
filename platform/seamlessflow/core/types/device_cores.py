"""Gives each device of a host its own cores, near it and whole: the threads of one physical core stay together.

It takes the cores near each device and which cores are threads of the same physical one, and returns one list a device.
Invariant: two devices get a core in common only if there are fewer cores than devices.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def assign_cores(near: Sequence[frozenset[int]], siblings: Collection[frozenset[int]]) -> list[list[int]]:
    """Return the cores of each device, sorted. Devices that are near the same cores get equally many of them."""
    assigned: list[list[int]] = [[] for _ in near]
    for cores in dict.fromkeys(near):
        alike = [number for number, one in enumerate(near) if one == cores]
        for number, group in zip(alike, split_cores(cores, len(alike), siblings), strict=True):
            assigned[number] = group
    return assigned


def split_cores(
    cores: Collection[int], num_groups: int, siblings: Collection[frozenset[int]] = ()
) -> list[list[int]]:
    """Return `num_groups` groups of the cores, as equal as can be. With fewer cores than groups, some have the same
    one."""
    if not cores:
        return [[] for _ in range(num_groups)]
    units = _units(frozenset(cores), siblings)
    if len(units) < num_groups:
        units = [[core] for core in sorted(cores)]
    return [sorted(core for unit in group for core in unit) for group in even_runs(units, num_groups)]


def even_runs(items: Sequence[T], num_groups: int) -> list[Sequence[T]]:
    """Return runs of the items, as equal as can be. With fewer items than runs, some runs have the same one."""
    if len(items) < num_groups:
        return [[items[number % len(items)]] for number in range(num_groups)]
    bounds = [number * len(items) // num_groups for number in range(num_groups + 1)]
    return [items[first:last] for first, last in pairwise(bounds)]


def _units(cores: frozenset[int], siblings: Collection[frozenset[int]]) -> list[list[int]]:
    """Return the physical cores, each as those of its threads that may be used, by their first one."""
    units = [sorted(threads & cores) for threads in siblings if threads & cores]
    single = cores.difference(*units)
    return sorted([*units, *([core] for core in single)])
