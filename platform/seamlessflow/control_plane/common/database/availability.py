"""A database that is away: a process waits for it at its start, and answers with 503 and `Retry-After` later.

The waiting uses psycopg directly: Django refuses its own connections where an event loop already runs, as it does in
uvicorn.
"""

import time
from typing import Any

import psycopg
from django.db import InterfaceError, OperationalError, connections

RETRY_S = 0.5
RETRY_AFTER_S = 2  # how long clients should wait
AWAY = "the database does not answer; try again in a moment"
# No connection can be made, one was lost, or the pool stays empty: another try may succeed.
DATABASE_AWAY = (OperationalError, InterfaceError)


class DatabaseUnavailable(RuntimeError):
    """PostgreSQL did not answer within the time given."""


def connection_arguments() -> dict[str, Any]:
    """Return psycopg's arguments for the configured database: its address and the user."""
    parameters = connections["default"].get_connection_params()
    names = ("user", "password", "host", "port", "dbname", "sslmode", "sslrootcert")
    return {name: parameters[name] for name in names if parameters.get(name)}


def database_wait(*, timeout_s: float = 30.0) -> None:
    """Return once the configured database answers. Raises DatabaseUnavailable with one clear sentence."""
    arguments = connection_arguments()
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            psycopg.connect(**arguments, connect_timeout=3).close()
        except psycopg.OperationalError as error:
            if time.monotonic() >= deadline:
                cause = " ".join(str(error).split())
                raise DatabaseUnavailable(
                    f"the database named by DATABASE_URL did not answer within {timeout_s:g} s: {cause}"
                ) from error
        else:
            return
        time.sleep(RETRY_S)
