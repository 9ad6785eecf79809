"""The trainer's side: it broadcasts the version on offer to all engines that ask at the same time.

An engine that asks gets a seat in a group that lives for one transfer. If it dies, hangs or comes late, it costs that
one transfer at most.
"""

import contextlib
import logging
import queue
import socket
import threading
import time
from dataclasses import dataclass

import msgspec
from msgspec import structs

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offers import Ask, Offer, Refusal, TransferFailed
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.transports.broadcast.group import (
    BroadcastGroup,
    Seat,
    shards_send,
    store_serve,
)
from seamlessflow_workers.weights.transports.sender import (
    LOOPBACK,
    Offered,
    SenderSettings,
    connections_serve,
    listening_close,
)

logger = logging.getLogger(__name__)

BUCKET_BYTES = 256 * 1024**2
_ASK_BYTES = 4096
_OWN_ADDRESS = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104 - compared with, not bound


@dataclass(frozen=True, slots=True)
class _Joiner:
    connection: socket.socket
    ask: Ask


class BroadcastSender:
    def __init__(self, offered: Offered, settings: SenderSettings, *, backend: WeightTransport) -> None:
        self._offered = offered
        self._settings = settings
        self._backend = backend
        self._gather_s = settings.gather_s
        self._bucket_bytes = settings.bucket_bytes or BUCKET_BYTES
        self._joiners: queue.SimpleQueue[_Joiner] = queue.SimpleQueue()
        self._num_groups = 0
        self._listening = self._bound()
        with self._bound() as store:
            self._store_port = store.getsockname()[1]
            host = _OWN_ADDRESS.get(settings.listen_host, settings.listen_host)
            self._store = store_serve(store, host=host)
        connections_serve(self._listening, self._seat)
        threading.Thread(target=self._rounds, name="weights-broadcast", daemon=True).start()

    def advertise(self, offer: Offer) -> Offer:
        port: int = self._listening.getsockname()[1]
        return structs.replace(offer, host=self._settings.host, port=port, backend=self._backend)

    def close(self) -> None:
        listening_close(self._listening)

    def _bound(self) -> socket.socket:
        listen_host = self._settings.listen_host
        family = socket.AF_INET6 if ":" in listen_host else socket.AF_INET
        return socket.create_server((listen_host, 0), family=family)

    def _seat(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            self._joiners.put(_Joiner(connection, msgspec.json.decode(lines.readline(_ASK_BYTES), type=Ask)))

    def _rounds(self) -> None:
        """Serve engines for ever: those that ask within `gather_s` of the first one are served together."""
        while True:
            joiners = [self._joiners.get()]
            until_s = time.monotonic() + self._gather_s
            with contextlib.suppress(queue.Empty):
                while (
                    len(joiners) < self._settings.max_engines and (rest_s := until_s - time.monotonic()) > 0
                ):
                    joiners.append(self._joiners.get(timeout=rest_s))
            try:
                self._broadcast(joiners)
            except (OSError, TransferFailed, RuntimeError) as error:
                logger.warning("could not broadcast weights to %d engines: %s", len(joiners), error)
            finally:
                for joiner in joiners:
                    joiner.connection.close()

    def _broadcast(self, joiners: list[_Joiner]) -> None:
        shards, refusals = self._offered.take([joiner.ask for joiner in joiners], self._backend)
        with shards:
            seated = []
            for joiner, refusal in zip(joiners, refusals, strict=True):
                if refusal is None:
                    seated.append(joiner)
                else:
                    _send_answer(joiner, refusal)
            if seated:
                self._broadcast_to(seated, shards)

    def _broadcast_to(self, joiners: list[_Joiner], shards: SealedShards) -> None:
        self._num_groups += 1
        name, num_ranks = f"group-{self._num_groups}", len(joiners) + 1
        for rank, joiner in enumerate(joiners, start=1):
            _send_answer(
                joiner,
                Seat(
                    rank=rank,
                    num_ranks=num_ranks,
                    store_port=self._store_port,
                    group=name,
                    bucket_bytes=self._bucket_bytes,
                    shards=shards.sizes(),
                ),
            )
        settings = self._settings
        group = BroadcastGroup(
            self._store,
            name=name,
            rank=0,
            num_ranks=num_ranks,
            backend=self._backend,
            host=settings.host if settings.listen_host in _OWN_ADDRESS else settings.listen_host,
            timeout_s=settings.timeout_s,
        )
        with contextlib.closing(group):
            shards_send(group, shards, bucket_bytes=self._bucket_bytes, on_bucket=settings.on_bucket)
        logger.info("version %d was broadcast to %d engines", joiners[0].ask.version, len(joiners))


def _send_answer(joiner: _Joiner, answer: Seat | Refusal) -> None:
    joiner.connection.sendall(msgspec.json.encode(answer) + b"\n")
