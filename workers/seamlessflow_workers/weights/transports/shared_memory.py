"""`ipc`: on one host, the trainer hands its sealed memory over to engines, shard by shard, without copying it.

The sender accepts engines that ask on a unix socket and sends each the descriptors of the shards on offer, one message
per shard; the engine returns them as shards under descriptors of its own process. Neither half imports torch.
Invariant: the engine takes only memory that the kernel has sealed, so the bytes stay as they are whatever happens to
the trainer.
"""

import socket

import msgspec
from msgspec import structs

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offers import Offer, Refusal, TransferFailed
from seamlessflow_workers.weights.sealed_shards import SealedShards, is_sealed
from seamlessflow_workers.weights.transports.host_socket import (
    MESSAGE_BYTES,
    ask_receive,
    host_listen,
    trainer_ask,
)
from seamlessflow_workers.weights.transports.sender import (
    Offered,
    SenderSettings,
    connections_serve,
    listening_close,
)


class Handed(msgspec.Struct, frozen=True, tag="handed"):
    """Sent with the descriptor of this shard: one message per shard, then the end of the connection."""

    shard: str


class SharedMemorySender:
    def __init__(self, offered: Offered, _settings: SenderSettings) -> None:
        self._offered = offered
        self._name, self._listening = host_listen()
        connections_serve(self._listening, self._hand_over)

    def advertise(self, offer: Offer) -> Offer:
        return structs.replace(offer, socket=self._name)

    def close(self) -> None:
        listening_close(self._listening)

    def _hand_over(self, connection: socket.socket) -> None:
        shards, (refusal,) = self._offered.take([ask_receive(connection)], WeightTransport.IPC)
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
        with trainer_ask(offer, WeightTransport.IPC, timeout_s) as connection:
            while True:
                raw, received, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 1)
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
