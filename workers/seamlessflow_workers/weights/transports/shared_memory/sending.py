"""A trainer hands its sealed shards to engines of its own host.

It accepts engines that ask on a unix socket and sends each the descriptors of the shards on offer, one message per
shard. It imports no torch.
"""

import socket

import msgspec
from msgspec import structs

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offers import Offer
from seamlessflow_workers.weights.transports.host_socket import ask_receive, host_listen
from seamlessflow_workers.weights.transports.sender import (
    Offered,
    SenderSettings,
    connections_serve,
    listening_close,
)
from seamlessflow_workers.weights.transports.shared_memory.messages import Handed


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
