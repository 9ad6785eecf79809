"""Both ends of the abstract unix socket through which engines ask the trainer on their own host.

The engine's end takes an offer and returns a connection on which it has asked; the trainer's end receives that request.
Invariant: anyone on the host can take an abstract name, so an engine talks only to a process of its own user.
"""

import secrets
import socket
import struct
from pathlib import Path

import msgspec

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offers import Ask, Offer, TransferFailed

MESSAGE_BYTES = 65_536
_ASK_BYTES = 4096
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


# The trainer's side.


def host_listen() -> tuple[str, socket.socket]:
    """Return a new name and the socket bound to it."""
    name = f"seamlessflow-{secrets.token_hex(12)}"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(f"\0{name}")
    return name, listening


def ask_receive(connection: socket.socket) -> Ask:
    """Receive an engine's request. Raises OSError, msgspec.DecodeError."""
    return msgspec.json.decode(connection.recv(_ASK_BYTES), type=Ask)


# The engine's side.


def trainer_ask(offer: Offer, transport: WeightTransport, timeout_s: float) -> socket.socket:
    """Ask the trainer on this host and return the connection. Raises OSError, TransferFailed."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(timeout_s)
        connection.connect(f"\0{offer.socket}")
        _require_own(connection)
        ask = Ask(token=offer.token, version=offer.version, backend=transport)
        connection.send(msgspec.json.encode(ask))
    except BaseException:
        connection.close()
        raise
    return connection


def _require_own(connection: socket.socket) -> None:
    """Check that the socket belongs to this user: anyone can take an abstract name. Raises TransferFailed."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(raw)
    if user != _user():
        raise TransferFailed(f"the socket belongs to user {user}")


def _user() -> int:
    return Path("/proc/self").stat().st_uid
