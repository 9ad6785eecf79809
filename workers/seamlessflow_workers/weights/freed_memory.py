"""Gives memory that was freed back to the system.

glibc keeps what a thread has freed for later allocations of that thread, and can use little of it for other sizes.
Staged weights can be as large as the model, so an engine would keep that much after an update, and once more
for each thread that ever staged. Invariant: memory in use is not touched.
"""

import ctypes

_LIBC = ctypes.CDLL(None)


def freed_memory_return() -> None:
    """Takes about 0.2 ms for each MB; the interpreter lock is released. Does nothing under a C library that keeps
    nothing."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)
