"""Rendezvous hashing: takes a key and the names of the members, and returns the member that owns the key.

Every process that knows the same members names the same owner, without a table. Invariants: if a member leaves, only
its own keys move, and they spread over all others; if a member joins, it takes keys only for itself.
"""

import hashlib
from collections.abc import Collection


def rendezvous_owner(key: bytes, members: Collection[str]) -> str:
    """Return the member with the highest weight for `key`. Raises ValueError if there are no members."""
    return max(members, key=lambda member: (_weight(key, member), member))


def _weight(key: bytes, member: str) -> bytes:
    return hashlib.blake2b(member.encode(), key=key[:64], digest_size=8).digest()
