"""Stores the rows of turns in one transaction.

`rows_store` takes rows, and perhaps a count of their turns that must apply to all of their sessions; it returns when
the rows are durable. Invariant: all is stored, or nothing is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.turns.node_rows import (
    COLUMN_OIDS,
    COPY_NODES,
    NodeRow,
    node_values,
    prompts_statement,
)


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
    before = ";".join(
        filter(None, [count.statement if count else "", prompts_statement(rows, known_prompts)])
    )
    async with connection.transaction(), connection.cursor() as cursor:
        if before:  # both in one message: a simple query has no parameters, so its texts are literal
            await cursor.execute(before.encode(), prepare=False)
            if count is not None and cursor.rowcount != count.num_sessions:
                raise NotCounted
        async with cursor.copy(COPY_NODES) as copy:
            copy.set_types(COLUMN_OIDS)
            for row in rows:
                await copy.write_row(node_values(row))
