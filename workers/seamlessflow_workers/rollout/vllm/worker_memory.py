"""How much of its GPU a worker of vLLM keeps while it sleeps. It takes counts of torch and of vLLM's allocator."""

from collections.abc import Iterable
from typing import Any

from seamlessflow.core.sizing.gpu_memory import CONTEXT_BYTES


def bytes_kept(allocations: Iterable[Any], *, reserved_bytes: int) -> int:
    """`allocations`: those of vLLM's sleep mode. Torch goes on to count the ones that sleep among `reserved_bytes`,
    because only their addresses are kept."""
    asleep_bytes: int = sum(one.handle[1] for one in allocations if one.is_asleep)
    return max(reserved_bytes - asleep_bytes, 0) + CONTEXT_BYTES
