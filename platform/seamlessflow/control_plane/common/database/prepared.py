"""Statements that PostgreSQL parses and plans once for each connection, for what a process asks again and again.

Takes a statement without values; returns its rows as tuples, without instances of models. Django's own cursors never
have a statement kept. Each process has few such statements, and they stay on its connection.
Invariant: errors are Django's, and Django counts the statement among its queries.
"""

from typing import Any, cast

from django.db import connection
from psycopg import Cursor

KEPT_FROM = 2  # PostgreSQL keeps a statement from this use of it on: it does not pay for one use


def prepared_rows(statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement that reads."""
    connection.ensure_connection()
    raw = connection.connection
    if raw.prepare_threshold is None:
        raw.prepare_threshold = KEPT_FROM
    with Cursor(raw) as cursor:
        wrap = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
        asked = wrap(cast("Any", cursor))
        asked.execute(statement)
        return cast("list[tuple[Any, ...]]", asked.fetchall())
