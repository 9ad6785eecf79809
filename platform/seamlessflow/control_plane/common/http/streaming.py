"""Makes bytes in threads while they are sent, because making them waits for disk, database and processor."""

import asyncio
from collections.abc import AsyncIterator, Iterator

from django.db import connection


async def in_threads(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks. `chunks` may use the database; its connection is closed after each one."""
    while (chunk := await asyncio.to_thread(_next, chunks)) is not None:
        yield chunk


def _next(chunks: Iterator[bytes]) -> bytes | None:
    try:
        return next(chunks, None)
    finally:
        connection.close()
