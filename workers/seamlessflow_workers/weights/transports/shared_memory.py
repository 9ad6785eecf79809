"""`ipc`: on one host, the trainer hands its sealed memory over to engines, shard by shard, without copying it.

The sender accepts engines that ask on an abstract unix socket and sends each the descriptors of the shards on offer,
one message per shard; the engine returns them as shards under descriptors of its own process. Neither half imports
torch. Invariants: the engine takes only memory that the kernel has sealed, so the bytes stay as they are whatever
happens to the trainer; and it talks only to a process of its own user, because anyone can take an abstract name.
"""

import secrets
import socket
import struct
from pathlib import Path

import msgspec
from msgspec import structs

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offers import Ask, Offer, Refusal, TransferFailed
from seamlessflow_workers.weights.sealed_shards import SealedShards, is_sealed
from seamlessflow_workers.weights.transports.sender import (
    Offered,
    SenderSettings,
    connections_serve,
    listening_close,
)

_MESSAGE_BYTES = 65_536
_ASK_BYTES = 4096
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class Handed(msgspec.Struct, frozen=True, tag="handed"):
    """Sent with the descriptor of this shard: one message per shard, then the end of the connection."""

    shard: str


class SharedMemorySender:
    def __init__(self, offered: Offered, _settings: SenderSettings) -> None:
        self._offered = offered
        self._name = f"seamlessflow-{secrets.token_hex(12)}"
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(f"\0{self._name}")
        connections_serve(self._listening, self._hand_over)

    def advertise(self, offer: Offer) -> Offer:
        return structs.replace(offer, socket=self._name)

    def close(self) -> None:
        listening_close(self._listening)

    def _hand_over(self, connection: socket.socket) -> None:
        ask = msgspec.json.decode(connection.recv(_ASK_BYTES), type=Ask)
        shards, (refusal,) = self._offered.take([ask], WeightTransport.IPC)
        with connection, shards:
            if refusal is not None:
                connection.send(msgspec.json.encode(refusal))
                return
            for name in shards.sizes():
                socket.send_fds(connection, [msgspec.json.encode(Handed(name))], [shards.descriptor(name)])


def shards_take_over(offer: Offer, timeout_s: float) -> SealedShards:
    """Return the trainer's own memory, shard by shard. Raises TransferFailed."""
    descriptors: dict[str, int] = {}
    try:
        with _trainer_ask(offer, timeout_s) as connection:
            while True:
                raw, received, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 1)
                if not raw:
                    break
                answer = msgspec.json.decode(raw, type=Handed | Refusal)
                if isinstance(answer, Refusal):
                    raise TransferFailed(f"the trainer refused: {answer.reason}")
                descriptors[answer.shard] = received[0]
    except BaseException as error:
        SealedShards(descriptors).close()
        if isinstance(error, OSError | msgspec.DecodeError | IndexError):
            raise TransferFailed(
                f"the transfer from the trainer that offered the weights failed: {error}"
            ) from error
        raise
    if not all(map(is_sealed, descriptors.values())):
        SealedShards(descriptors).close()
        raise TransferFailed("the trainer's memory is not sealed")
    return SealedShards(descriptors)


def _trainer_ask(offer: Offer, timeout_s: float) -> socket.socket:
    """Ask the trainer on this host and return the connection. Raises OSError, TransferFailed."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(timeout_s)
        connection.connect(f"\0{offer.socket}")
        _require_own(connection)
        connection.send(msgspec.json.encode(Ask(token=offer.token, version=offer.version)))
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
