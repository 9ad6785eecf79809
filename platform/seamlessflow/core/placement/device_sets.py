"""Which devices of a machine each of its engines gets.

It takes the devices of a machine and how many one engine needs, and returns one set for each engine. Devices of one
NUMA node stay together as far as their number allows. Invariants: the same devices give the same sets; no device is in
two sets; fewer devices than one engine needs are left over.
"""

from collections.abc import Sequence

from seamlessflow.core.types.devices import Device


def device_sets(devices: Sequence[Device], num_each: int) -> list[tuple[Device, ...]]:
    """Return a set of `num_each` devices for each engine; none if there are fewer. Example: 7 devices, 2 for each
    engine, give 3 sets."""
    near = sorted(devices, key=lambda device: -1 if device.numa is None else device.numa)
    return [tuple(near[start : start + num_each]) for start in range(0, len(near) - num_each + 1, num_each)]
