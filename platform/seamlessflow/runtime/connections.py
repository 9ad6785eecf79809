"""Ends a network connection that may be half dead: open on this side, gone on the other."""

import contextlib
import os
import socket
from typing import Any

# For libpq: after this long, an unanswered packet counts as lost, not late.
KEEPALIVES: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # ms
}


def connection_cut(file_number: int) -> None:
    """Shut a connection down, so that whatever thread waits for an answer there reads its end instead."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(file_number)) as same:
        same.shutdown(socket.SHUT_RDWR)
