"""The trainer's side: it sends a version's shards through a bucket of memory that it shares with an engine.

Trainer and engine take turns over a unix socket: filled, taken, filled, … Each engine has its own bucket, connection
and thread, so one that hangs or dies does not hold up the others.
"""

import logging
import socket
import threading
from collections.abc import Callable

import msgspec
import torch
from msgspec import structs

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offers import Offer, Refusal
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.transports.cuda_ipc.memory import BucketMemory, Buckets, Filled, Taken
from seamlessflow_workers.weights.transports.host_socket import MESSAGE_BYTES, ask_receive, host_listen
from seamlessflow_workers.weights.transports.sender import (
    Offered,
    SenderSettings,
    connections_serve,
    listening_close,
)

logger = logging.getLogger(__name__)

BUCKET_BYTES = 64 * 1024**2
MAX_BUCKETS = 8  # on the GPU at a time; further engines read the files


class CudaIpcSender:
    def __init__(self, offered: Offered, settings: SenderSettings) -> None:
        assert settings.memory is not None
        self._offered = offered
        self._memory = settings.memory
        self._timeout_s = settings.timeout_s
        self._bucket_bytes = settings.bucket_bytes or BUCKET_BYTES
        self._on_bucket = settings.on_bucket
        self._free_buckets = threading.BoundedSemaphore(MAX_BUCKETS)
        self._name, self._listening = host_listen()
        connections_serve(self._listening, self._hand_over)

    def advertise(self, offer: Offer) -> Offer:
        return structs.replace(offer, socket=self._name, memory=self._memory.name)

    def close(self) -> None:
        listening_close(self._listening)

    def _hand_over(self, connection: socket.socket) -> None:
        ask = ask_receive(connection)
        shards, (refusal,) = self._offered.take([ask], WeightTransport.CUDA_IPC)
        if refusal is None and not self._free_buckets.acquire(blocking=False):
            refusal = Refusal(f"{MAX_BUCKETS} engines are being served already")
        if refusal is None:
            threading.Thread(
                target=self._send, args=(connection, shards, ask.version), name="weights-buckets", daemon=True
            ).start()
            return
        with connection, shards:
            connection.send(msgspec.json.encode(refusal))

    def _send(self, connection: socket.socket, shards: SealedShards, version: int) -> None:
        """Send to one engine, in parallel to others."""
        name = self._memory.name
        try:
            with connection, shards:
                connection.settimeout(self._timeout_s)
                buckets_send(
                    connection,
                    shards,
                    self._memory,
                    bucket_bytes=self._bucket_bytes,
                    on_bucket=self._on_bucket,
                )
            logger.info("handed version %d to an engine through memory of %s", version, name)
        except (OSError, msgspec.DecodeError, RuntimeError) as error:
            logger.warning(
                "an engine failed to take version %d through memory of %s: %s", version, name, error
            )
        finally:
            self._free_buckets.release()


def buckets_send(
    connection: socket.socket,
    shards: SealedShards,
    memory: BucketMemory,
    *,
    bucket_bytes: int,
    on_bucket: Callable[[], None],
) -> None:
    """Send all shards to one engine. Raises OSError if it dies or hangs, RuntimeError if the GPU has no room."""
    sizes = shards.sizes()
    bucket = memory.make(min(bucket_bytes, max(sizes.values(), default=1)))
    try:
        connection.send(msgspec.json.encode(Buckets(bucket.handle, bucket_bytes, sizes)))
        for name in sizes:
            shard = torch.frombuffer(shards.map(name), dtype=torch.uint8)
            for part in shard.split(bucket_bytes):
                on_bucket()
                with memory.working():
                    bucket.tensor[: len(part)].copy_(part)
                connection.send(msgspec.json.encode(Filled()))
                msgspec.json.decode(connection.recv(MESSAGE_BYTES), type=Taken)
        connection.recv(1)  # returns once the engine has unmapped the bucket and hung up
    finally:
        bucket.close()
