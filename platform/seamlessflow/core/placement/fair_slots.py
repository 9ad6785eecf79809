"""Fair slots: takes the capacity of one engine and each gateway's demand for it, and returns the slots of each.

The division is max-min fair: a gateway that wants less than an equal number of slots gets all it wants, and the others
divide the rest. Unwanted capacity is lent in equal numbers, so an idle gateway can begin at once. Every process that
knows the same demands computes the same slots. Invariants: the slots add up to the capacity, or to one for each gateway
if there are more gateways than slots; no gateway has less than one.
"""

from collections.abc import Mapping


def fair_slots(capacity: int, demands: Mapping[str, int]) -> dict[str, int]:
    """Return the slots of each member. Example: 10 slots and demands {a: 1, b: 20} give {a: 1, b: 9}."""
    wanted = {member: max(1, demand) for member, demand in demands.items()}
    slots: dict[str, int] = {}
    left = max(capacity, len(wanted))
    for member in sorted(wanted, key=lambda member: (wanted[member], member)):
        equal = left // (len(wanted) - len(slots))
        slots[member] = min(wanted[member], equal)
        left -= slots[member]
    for number, member in enumerate(sorted(slots)):  # the rest is wanted by no gateway, or does not divide
        extra = left // (len(slots) - number)
        slots[member] += extra
        left -= extra
    return slots
