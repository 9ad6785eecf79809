"""Fair shares: takes the capacity of one engine and what each gateway wants of it, and returns each one's share.

Shares are max-min fair: whoever wants less than an equal share gets what it wants, and the others divide the rest.
Capacity that nobody wants is lent in equal parts, so an idle gateway can begin at once. Every process that knows the
same demands computes the same shares. Invariants: the shares add up to the capacity, or to one for each gateway if
there are more gateways than slots; no gateway has less than one.
"""

from collections.abc import Mapping


def fair_shares(capacity: int, demands: Mapping[str, int]) -> dict[str, int]:
    """Return the share of each member. Example: 10 slots and demands {a: 1, b: 20} give {a: 1, b: 9}."""
    wanted = {member: max(1, demand) for member, demand in demands.items()}
    shares: dict[str, int] = {}
    left = max(capacity, len(wanted))
    for member in sorted(wanted, key=lambda member: (wanted[member], member)):
        equal = left // (len(wanted) - len(shares))
        shares[member] = min(wanted[member], equal)
        left -= shares[member]
    for number, member in enumerate(sorted(shares)):  # what is left is wanted by nobody, or does not divide
        extra = left // (len(shares) - number)
        shares[member] += extra
        left -= extra
    return shares
