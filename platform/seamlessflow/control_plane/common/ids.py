"""Makes identifiers: supplies the clock and the randomness that `core.types.ids` asks for."""

import os
import time
from uuid import UUID

from seamlessflow.core.types.ids import uuid7


def new_id() -> UUID:
    """Return a new UUIDv7."""
    return uuid7(unix_ms=time.time_ns() // 1_000_000, random_bytes=os.urandom(10))
