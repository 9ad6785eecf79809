"""A database connection that a lasting thread keeps from one request to the next.

It is used by one thread, so it needs neither a pool nor a question to the database before each request. PostgreSQL
gets values apart from statements and keeps those statements that repeat, so it parses and plans them once.
Invariant: a thread is never given the connection of another one.
"""

import select

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

ALIAS = "default"
# A statement is kept by PostgreSQL when it is sent for this time; those of rare events are not worth it.
PREPARED_FROM = 3


def connection_keep() -> None:
    """Give this thread a connection of its own. It is made with the first statement."""
    known = connections[ALIAS]
    options = {name: value for name, value in known.settings_dict["OPTIONS"].items() if name != "pool"}
    lasting = known.settings_dict | {
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": False,
        "OPTIONS": options | {"server_side_binding": True, "prepare_threshold": PREPARED_FROM},
    }
    connections[ALIAS] = type(known)(lasting, ALIAS)


def connection_renew() -> None:
    """Drop this thread's connection if the server closed it, so that the next statement makes a new one.

    A server that ends a connection leaves its farewell to be read. Looking for it costs no round trip.
    """
    wrapper: BaseDatabaseWrapper = connections[ALIAS]
    raw = wrapper.connection
    if raw is not None and (raw.closed or _has_something_to_read(raw.fileno())):
        wrapper.close()


def _has_something_to_read(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
