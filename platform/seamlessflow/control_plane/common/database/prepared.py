"""Statements that PostgreSQL parses and plans once for each connection, for what a process asks again and again.

Takes a statement and its values; returns its rows as tuples with names, without instances of models. Django's own
cursors never have a statement kept. Each process has few such statements, and they stay on its connection.
Invariant: errors are Django's, and Django counts the statement among its queries.
"""

from collections.abc import Mapping
from typing import Any, cast

from django.db import connection
from psycopg import Cursor
from psycopg.rows import namedtuple_row

KEPT_FROM = 2  # PostgreSQL keeps a statement from this use of it on: it does not pay for one use


def prepared_rows(statement: str, values: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the rows of a statement that reads, each a named tuple of its columns."""
    connection.ensure_connection()
    raw = connection.connection
    if raw.prepare_threshold is None:
        raw.prepare_threshold = KEPT_FROM
    with Cursor(raw, row_factory=namedtuple_row) as cursor:
        wrap = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
        asked = wrap(cast("Any", cursor))
        asked.execute(statement, values)
        return cast("list[Any]", asked.fetchall())
