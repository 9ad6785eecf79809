"""An engine takes over the trainer's sealed shards.

It takes an offer and returns shards under descriptors of this process. Invariant: it takes only memory that the kernel
has sealed, so the bytes stay as they are whatever becomes of the trainer.
"""

import socket

import msgspec

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offers import Offer, Refusal, TransferFailed
from seamlessflow_workers.weights.sealed_shards import SealedShards, is_sealed
from seamlessflow_workers.weights.transports.host_socket import MESSAGE_BYTES, trainer_ask
from seamlessflow_workers.weights.transports.shared_memory.messages import Handed


def shards_take_over(offer: Offer, timeout_s: float) -> SealedShards:
    """The trainer's own memory, shard by shard. Raises TransferFailed."""
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
            raise TransferFailed(f"the trainer that offered the weights: {error}") from error
        raise
    if not all(map(is_sealed, descriptors.values())):
        SealedShards(descriptors).close()
        raise TransferFailed("the trainer's memory is not sealed")
    return SealedShards(descriptors)
