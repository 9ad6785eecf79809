"""Gives each device of a host its own cores, near it and whole: the threads of one physical core stay together.

It takes the cores near each device and which cores are threads of the same physical one, and returns one list a device.
Invariant: two devices get a core in common only if there are fewer cores than devices.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def share_cores(near: Sequence[frozenset[int]], siblings: Collection[frozenset[int]]) -> list[list[int]]:
    """Return the cores of each device, sorted. Devices that are near the same cores get equal parts of them."""
    shares: list[list[int]] = [[] for _ in near]
    for cores in dict.fromkeys(near):
        alike = [number for number, one in enumerate(near) if one == cores]
        for number, part in zip(alike, split_cores(cores, len(alike), siblings), strict=True):
            shares[number] = part
    return shares


def split_cores(
    cores: Collection[int], num_parts: int, siblings: Collection[frozenset[int]] = ()
) -> list[list[int]]:
    """Return `num_parts` parts of the cores, as equal as can be. With fewer cores than parts, some share one."""
    if not cores:
        return [[] for _ in range(num_parts)]
    units = _units(frozenset(cores), siblings)
    if len(units) < num_parts:
        units = [[core] for core in sorted(cores)]
    return [sorted(core for unit in part for core in unit) for part in even_parts(units, num_parts)]


def even_parts(items: Sequence[T], num_parts: int) -> list[Sequence[T]]:
    """Return runs of the items, as equal as can be. With fewer items than parts, some parts share one."""
    if len(items) < num_parts:
        return [[items[number % len(items)]] for number in range(num_parts)]
    bounds = [number * len(items) // num_parts for number in range(num_parts + 1)]
    return [items[first:last] for first, last in pairwise(bounds)]


def _units(cores: frozenset[int], siblings: Collection[frozenset[int]]) -> list[list[int]]:
    """Return the physical cores, each as those of its threads that may be used, by their first one."""
    units = [sorted(threads & cores) for threads in siblings if threads & cores]
    single = cores.difference(*units)
    return sorted([*units, *([core] for core in single)])
