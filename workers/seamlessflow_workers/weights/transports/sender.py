"""The interface of the sending half of every transport.

A sender takes the version on offer, in sealed memory, and the addresses at which this trainer listens. It serves
engines in its own threads. Invariant: an engine gets a copy of the version that was on offer when it asked, so engines
never wait for a training step, nor a step for engines.
"""

import contextlib
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offers import TIMEOUT_S, Ask, Offer, Refusal
from seamlessflow_workers.weights.sealed_shards import SealedShards

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
GATHER_S = 0.1  # engines hear of a version within about this time of one another
MAX_ENGINES = 64  # in one broadcast; further ones form another
_ASK_S = 5.0


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    listen_host: str = LOOPBACK  # the address of this host to listen on
    host: str = LOOPBACK  # the address at which others reach it
    gather_s: float = GATHER_S
    timeout_s: float = TIMEOUT_S
    max_engines: int = MAX_ENGINES
    bucket_bytes: int | None = None  # None: what suits the transport
    on_bucket: Callable[[], None] = _nothing  # called before each bucket


class Sender(Protocol):
    """Serves engines from its construction until `close`."""

    def advertise(self, offer: Offer) -> Offer:
        """Return the offer with the address at which engines find this sender."""
        ...

    def close(self) -> None: ...


class Offered:
    """The version on offer, shared by the threads of all senders."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        self._lock = threading.Lock()  # of the two below
        self._version = 0
        self._shards = SealedShards()

    def replace(self, shards: SealedShards, *, version: int) -> None:
        """Offer `shards` instead of the previous version, and become their owner."""
        with self._lock:
            former, self._shards, self._version = self._shards, shards, version
            former.close()

    def take(
        self, asks: Sequence[Ask], transport: WeightTransport
    ) -> tuple[SealedShards, list[Refusal | None]]:
        """Return a copy of the shards and, for each request, its refusal if it is refused; all at one moment."""
        with self._lock:
            return self._shards.copy(), [self._refusal(ask, transport) for ask in asks]

    def close(self) -> None:
        with self._lock:
            self._shards.close()

    def _refusal(self, ask: Ask, transport: WeightTransport) -> Refusal | None:
        if not secrets.compare_digest(ask.token, self.token):
            return Refusal("the token is not the one in the offer")
        if ask.version != self._version:
            return Refusal(f"version {ask.version} is no longer offered; version {self._version} is")
        if ask.backend is not transport:
            return Refusal(f"{ask.backend} was requested, but {transport} is on offer")
        return None


def connections_serve(listening: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """Accept connections in a thread of its own and pass each to `serve`, until `listening_close`."""
    listening.listen()

    def run() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return  # closed
            connection.settimeout(_ASK_S)
            try:
                serve(connection)
            except (OSError, msgspec.DecodeError, UnicodeError) as error:
                logger.warning("could not serve an engine that asked for weights: %s", error)
                connection.close()

    threading.Thread(target=run, name="weights-offer", daemon=True).start()


def listening_close(listening: socket.socket) -> None:
    with contextlib.suppress(OSError):
        listening.shutdown(socket.SHUT_RDWR)
    listening.close()
