"""Ports for the servers of an installation, each given to only one launcher.

`claimed_port` takes preferred numbers and yields a port that nothing listens on (of loopback, unless a host is named),
claimed until the context is left. Seconds pass between checking a port and the server's own bind. In that time another
launcher would find the port free as well, and our server would answer its readiness check. So a launcher first claims
the number with a unix socket of that name in the abstract namespace. Like the port, it belongs to the network
namespace, and the kernel drops it when we end.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from seamlessflow.cli.local.failure import InstallationFailed

LOOPBACK = "127.0.0.1"
PREFERRED_WEB_PORT = 8470
PREFERRED_GATEWAY_PORT = 8471
NUM_PORTS_TRIED = 200
LISTEN_BACKLOG = 4096


@contextmanager
def claimed_port(preferred: int, *, last: int | None = None, host: str = LOOPBACK) -> Iterator[int]:
    """Yield `last`, or the first port from `preferred` on, that is free and not claimed by another launcher. Raises
    InstallationFailed."""
    for port in [*([] if last is None else [last]), *range(preferred, preferred + NUM_PORTS_TRIED)]:
        with socket.socket(socket.AF_UNIX) as claim:
            if _is_claimed(claim, port) and _is_free(host, port):
                yield port
                return
    end = preferred + NUM_PORTS_TRIED - 1
    raise InstallationFailed(f"No port between {preferred} and {end} is free on {host}.")


@contextmanager
def listening_socket(port: int, *, host: str = LOOPBACK) -> Iterator[socket.socket]:
    """Yield a socket that listens on a claimed port, for a server that inherits it.

    It stays open while that server is away, so clients that connect meanwhile are not refused: they wait for the next.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(LISTEN_BACKLOG)
        yield listener


def _is_claimed(claim: socket.socket, port: int) -> bool:
    try:
        claim.bind(f"\0seamlessflow-port-{port}")
    except OSError:
        return False
    return True


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as listener:
        # The servers set this too, so a port in TIME_WAIT counts as free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError:
            return False
        return True
