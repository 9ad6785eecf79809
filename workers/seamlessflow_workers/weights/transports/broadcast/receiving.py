"""The engine's side: it asks for a seat in a broadcast and joins it.

It takes an offer and the backend to use, and returns shards in sealed memory of this process. It imports torch only
when it asks for a seat.
"""

import socket

import msgspec

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offers import Ask, Offer, Refusal, TransferFailed
from seamlessflow_workers.weights.sealed_shards import SealedShards

NUM_TRIES = 2  # the second in a group without the member that broke the first


def shards_join(offer: Offer, timeout_s: float, *, backend: WeightTransport) -> SealedShards:
    """Receive the shards, in a second group if the first one breaks. Raises TransferFailed."""
    for number in range(1, NUM_TRIES + 1):
        try:
            return _join_once(offer, backend, timeout_s)
        except TransferFailed:
            if number == NUM_TRIES:
                raise
    raise AssertionError("unreachable")


def _join_once(offer: Offer, backend: WeightTransport, timeout_s: float) -> SealedShards:
    # Not at the top: shared memory and files need no torch. Not later: the others wait for every engine with a seat.
    from seamlessflow_workers.weights.transports.broadcast.group import Seat, seat_take

    try:
        with socket.create_connection((offer.host, offer.port), timeout=timeout_s) as connection:
            own_host = connection.getsockname()[0]
            ask = Ask(token=offer.token, version=offer.version, backend=backend)
            connection.sendall(msgspec.json.encode(ask) + b"\n")
            with connection.makefile("rb") as lines:
                line = lines.readline()
            if not line:
                raise TransferFailed("the trainer that offered the weights closed the connection")
            answer = msgspec.json.decode(line, type=Seat | Refusal)
            if isinstance(answer, Refusal):
                raise TransferFailed(f"the trainer refused: {answer.reason}")
            return seat_take(answer, trainer=offer.host, own=own_host, backend=backend, timeout_s=timeout_s)
    except (OSError, msgspec.DecodeError) as error:
        raise TransferFailed(
            f"the transfer from the trainer that offered the weights failed: {error}"
        ) from error
