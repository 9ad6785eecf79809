"""Rows of statements as tuples with names, without instances of models.

Takes a statement and its values. What a process asks again and again, PostgreSQL parses and plans once for each
connection: Django's own cursors never have a statement kept. Each process has few such statements.
Invariant: errors are Django's, and Django counts the statement among its queries.
"""

from collections.abc import Mapping
from typing import Any, cast

from django.db import connection
from psycopg import Cursor
from psycopg.rows import namedtuple_row

KEPT_FROM = 2  # PostgreSQL keeps a statement from this use of it on: it does not pay for one use


def named_rows(statement: str, values: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the rows of a statement that is not kept, each a named tuple of its columns."""
    with connection.cursor() as cursor:
        cursor.cursor.row_factory = namedtuple_row
        cursor.execute(statement, values)
        return cast("list[Any]", cursor.fetchall())


def prepared_rows(statement: str, values: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the rows of a statement that reads and is kept, each a named tuple of its columns."""
    connection.ensure_connection()
    raw = connection.connection
    if raw.prepare_threshold is None:
        raw.prepare_threshold = KEPT_FROM
    with Cursor(raw, row_factory=namedtuple_row) as cursor:
        wrap = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
        asked = wrap(cast("Any", cursor))
        asked.execute(statement, values)
        return cast("list[Any]", asked.fetchall())
