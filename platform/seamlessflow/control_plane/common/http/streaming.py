"""Bytes that are made while they are sent, in threads: making them waits for disk, database and processor."""

import asyncio
from collections.abc import AsyncIterator, Iterator

from django.db import connection


async def in_threads(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """`chunks` may use the database, each time on a connection that it does not keep."""
    while (chunk := await asyncio.to_thread(_next, chunks)) is not None:
        yield chunk


def _next(chunks: Iterator[bytes]) -> bytes | None:
    try:
        return next(chunks, None)
    finally:
        connection.close()
