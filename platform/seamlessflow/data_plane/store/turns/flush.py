"""Stores the rows of turns in one transaction for which the server is asked once, and answers once.

`rows_store` takes rows, and perhaps a count of their turns that must apply to all of their sessions; it returns when
the rows are durable. The statements are one simple query, which PostgreSQL runs as one transaction: what its COPY waits
for is sent only if the count was right. Invariant: all is stored, or nothing is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg import AsyncCopy, generators
from psycopg.abc import Buffer, PQGen
from psycopg.copy import AsyncWriter
from psycopg.errors import QueryCanceled, error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Wait

from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.turns.node_rows import (
    COLUMN_OIDS,
    COPY_NODES,
    NodeRow,
    node_values,
    prompts_statement,
)

MAX_CHUNK_BYTES = 128 << 10  # libpq may never accept a larger one
_DONE = (ExecStatus.COMMAND_OK, ExecStatus.COPY_IN)


class NotCounted(Exception):
    """The count did not apply to all sessions; nothing was stored."""


@dataclass(frozen=True, slots=True)
class Count:
    """A statement that counts the turns of `num_sessions` sessions, a row each. Its text must be trusted."""

    statement: str
    num_sessions: int


async def rows_store(
    connection: Connection, rows: Sequence[NodeRow], known_prompts: set[UUID], *, count: Count | None = None
) -> None:
    """Store rows and the prompts of roots, except those known. The connection must be in no transaction.

    Raises NotCounted.
    """
    statements = [count.statement if count else "", prompts_statement(rows, known_prompts), COPY_NODES]
    query = ";".join(filter(None, statements)).encode()
    chunks = await _chunks(connection, rows)
    await connection.wait(_stored(connection.pgconn, query, chunks, count))


async def _chunks(connection: Connection, rows: Sequence[NodeRow]) -> list[memoryview]:
    """Return rows as COPY sends them."""
    written = _Written()
    async with connection.cursor() as cursor, AsyncCopy(cursor, binary=True, writer=written) as copy:
        copy.set_types(COLUMN_OIDS)
        for row in rows:
            await copy.write_row(node_values(row))
    return written.chunks


class _Written(AsyncWriter):
    def __init__(self) -> None:
        self.chunks: list[memoryview] = []

    async def write(self, data: Buffer) -> None:
        whole = memoryview(data)
        self.chunks += [whole[at : at + MAX_CHUNK_BYTES] for at in range(0, len(whole), MAX_CHUNK_BYTES)]


def _stored(pgconn: PGconn, query: bytes, chunks: Sequence[Buffer], count: Count | None) -> PQGen[None]:
    pgconn.send_query(query)
    results = yield from generators.execute(pgconn)
    _require_done(pgconn, results)
    if count is not None and results[0].command_tuples != count.num_sessions:
        yield from _given_up(pgconn)
        raise NotCounted
    for chunk in chunks:
        yield from generators.copy_to(pgconn, chunk, flush=False)
    yield from _ended(pgconn)


def _given_up(pgconn: PGconn) -> PQGen[None]:
    try:
        yield from _ended(pgconn, b"a session was not counted")
    except QueryCanceled:
        return


def _ended(pgconn: PGconn, error: bytes | None = None) -> PQGen[None]:
    """End COPY, and the transaction with it: as a failure if there is an error."""
    while pgconn.put_copy_end(error) == 0:
        while not (yield Wait.W):
            continue
    yield from generators.send(pgconn)
    _require_done(pgconn, (yield from generators.fetch_many(pgconn)))


def _require_done(pgconn: PGconn, results: Sequence[PGresult]) -> None:
    """Raises the psycopg.Error of a statement that failed, or of the commit."""
    for result in results:
        if result.status not in _DONE:
            raise error_from_result(result, encoding="utf-8")
