"""Decides which bytes of a log that outgrows its limit are kept: its head and its tail.

Offsets count from its first byte.
"""

from collections.abc import Iterator


def log_tail_begin(end: int, *, head_bytes: int, tail_bytes: int) -> int:
    """Return where the tail of a log of `end` bytes begins; chunks between the head's end and there are deleted.

    >>> log_tail_begin(100, head_bytes=10, tail_bytes=50), log_tail_begin(60, head_bytes=10, tail_bytes=50)
    (50, 10)
    """
    return max(end - tail_bytes, head_bytes)


def log_parts(offset: int, data: bytes, *, head_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Cut a chunk at the end of the head, because logs are deleted chunk by chunk.

    >>> list(log_parts(8, b"abcd", head_bytes=10))
    [(8, b'ab'), (10, b'cd')]
    """
    cut = head_bytes - offset
    if 0 < cut < len(data):
        yield offset, data[:cut]
        yield head_bytes, data[cut:]
    else:
        yield offset, data
