"""Names of pools: groups of machines that projects are granted."""

import re

from seamlessflow.core.types.limits import PoolName, limits_of

OPEN_POOL = "default"  # open to all projects until it is granted to some
_POOL = re.compile(limits_of(PoolName).pattern or "")


class InvalidPool(ValueError):
    """A name that does not match the grammar."""


def parse_pool(name: str) -> str:
    """Check the name of a pool. Raises InvalidPool."""
    if not _POOL.fullmatch(name):
        raise InvalidPool(
            f"{name!r} is not accepted; accepted: 1 to 63 of a-z, 0-9 and '-', a letter or digit at both ends"
        )
    return name
