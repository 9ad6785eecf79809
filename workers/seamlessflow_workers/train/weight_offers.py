"""Offers the version just published from this trainer's memory, while it goes on to train the next one.

The shards as they were written enter, held in sealed memory; engines that ask have them: by descriptor on the same
host, through a bucket of the card that both share, or by a broadcast to all that ask in the same moment. What is
offered is a copy, so no engine waits for a step and no step for an engine; the next version replaces it. An engine that
dies, hangs or comes late costs this one transfer at most: the files are there for whoever could not be served.
"""

import contextlib
import logging
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from torch._C._distributed_c10d import TCPStore

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.rollout.transfer.broadcast import BroadcastGroup, shards_send
from seamlessflow_workers.rollout.transfer.bucket_memory import BucketMemory, CudaMemory
from seamlessflow_workers.rollout.transfer.buckets import BUCKET_BYTES as CARD_BUCKET_BYTES
from seamlessflow_workers.rollout.transfer.buckets import buckets_send
from seamlessflow_workers.train.step.process_group import training_device
from seamlessflow_workers.train.step_engine import ModelLoadError
from seamlessflow_workers.weights.offers import (
    Ask,
    Handed,
    Offer,
    Refusal,
    Seat,
    TransferFailed,
    offer_withdraw,
    offer_write,
    place,
)
from seamlessflow_workers.weights.sealed_shards import SealedShards

logger = logging.getLogger(__name__)

GATHER_S = 0.1  # engines are told of a version within about this of one another
TIMEOUT_S = 30.0
MAX_ENGINES = 64  # of one broadcast; the next ones form another
BUCKET_BYTES = 256 * 1024**2
MAX_BUCKETS = 8  # on the card at a time; further engines read the files
_ASK_BYTES = 4096
_ASK_S = 5.0
_ON_HOST = (WeightTransport.AUTO, WeightTransport.IPC, WeightTransport.CUDA_IPC)
_LOOPBACK = "127.0.0.1"
_OWN_ADDRESS = {"0.0.0.0": _LOOPBACK, "::": "::1"}  # noqa: S104 - compared with, not bound


@dataclass(frozen=True, slots=True)
class _Joiner:
    connection: socket.socket
    ask: Ask


def offers_open(versions: Path, spec: JobSpec) -> "WeightOffers | None":
    """Of a job that wants more than files. Raises ModelLoadError."""
    transport = spec.train.weight_transport
    if transport is WeightTransport.FILE:
        return None
    listen_host = os.environ.get("SEAMLESSFLOW_LISTEN_HOST") or _LOOPBACK
    host = os.environ.get("SEAMLESSFLOW_ADVERTISED_HOST") or listen_host
    backend_for(transport, has_cuda=torch.cuda.is_available())
    memory = CudaMemory(training_device()) if transport is WeightTransport.CUDA_IPC else None
    return WeightOffers(versions, transport, listen_host=listen_host, host=host, memory=memory)


def backend_for(transport: WeightTransport, *, has_cuda: bool) -> WeightTransport | None:
    """The collective that a trainer offers; None: none. Raises ModelLoadError for a transport that it cannot."""
    if transport in (WeightTransport.NCCL, WeightTransport.CUDA_IPC) and not has_cuda:
        raise ModelLoadError(
            f"train.weight_transport is {transport}, which needs CUDA, and this trainer computes on a processor; "
            "accepted here: auto, file, ipc, gloo"
        )
    if transport in (WeightTransport.NCCL, WeightTransport.GLOO):
        return transport
    return WeightTransport.NCCL if transport is WeightTransport.AUTO and has_cuda else None


class WeightOffers:
    """One per trainer; its threads end with it. `offer` and `close` are called from one thread."""

    def __init__(
        self,
        versions: Path,
        transport: WeightTransport,
        *,
        listen_host: str = _LOOPBACK,
        host: str = _LOOPBACK,
        memory: BucketMemory | None = None,
        gather_s: float = GATHER_S,
        timeout_s: float = TIMEOUT_S,
        max_engines: int = MAX_ENGINES,
        bucket_bytes: int | None = None,
        on_bucket: Callable[[], None] = lambda: None,
    ) -> None:
        """`listen_host`: the address of this host that is listened on; `host`: under which others reach it; `memory`:
        which engines share, for cuda_ipc. `on_bucket` is called before each bucket."""
        self._versions = versions
        self._listen_host, self._host = listen_host, host
        self._gather_s, self._timeout_s = gather_s, timeout_s
        self._max_engines = max_engines
        self._bucket_bytes = bucket_bytes or (BUCKET_BYTES if memory is None else CARD_BUCKET_BYTES)
        self._on_bucket = on_bucket
        self._memory = memory
        self._backend = None if memory else backend_for(transport, has_cuda=torch.cuda.is_available())
        self._free_buckets = threading.BoundedSemaphore(MAX_BUCKETS)
        self._token = secrets.token_urlsafe(24)
        self._lock = threading.Lock()  # of the two below
        self._version = 0
        self._shards = SealedShards()
        self._joiners: queue.SimpleQueue[_Joiner] = queue.SimpleQueue()
        self._num_groups = 0
        self._listening: list[socket.socket] = []
        offer_withdraw(versions)  # of a trainer that is gone
        self._name = self._listen_on_host() if transport in _ON_HOST else None
        self._port = self._listen_collective() if self._backend is not None else 0

    def shards(self) -> SealedShards:
        """To keep the shards of a version in, while they are written."""
        return SealedShards(are_fingerprinted=self._memory is not None)

    def offer(self, shards: SealedShards, *, version: int, manifest_sha256: str) -> None:
        """From now on; the version before is offered no more."""
        with self._lock:
            former, self._shards, self._version = self._shards, shards, version
            former.close()
        offer_write(
            self._versions,
            Offer(
                version=version,
                manifest_sha256=manifest_sha256,
                token=self._token,
                place=place(),
                socket=self._name,
                memory=None if self._memory is None else self._memory.name,
                host=self._host,
                port=self._port,
                backend=self._backend,
            ),
        )

    def close(self) -> None:
        offer_withdraw(self._versions)
        for listening in self._listening:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        with self._lock:
            self._shards.close()

    # Memory of the host or of a card.

    def _listen_on_host(self) -> str:
        name = f"seamlessflow-{secrets.token_hex(12)}"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(f"\0{name}")
        self._accept(listening, self._hand_over)
        return name

    def _hand_over(self, connection: socket.socket) -> None:
        ask = msgspec.json.decode(connection.recv(_ASK_BYTES), type=Ask)
        with self._lock:
            refusal = self._refusal(
                ask, WeightTransport.IPC if self._memory is None else WeightTransport.CUDA_IPC
            )
            shards = self._shards.copy()
        if refusal is None and self._memory is not None:
            if self._free_buckets.acquire(blocking=False):
                arguments = (connection, shards, self._memory, ask.version)
                threading.Thread(
                    target=self._send_buckets, args=arguments, name="weights-buckets", daemon=True
                ).start()
                return
            refusal = Refusal(f"{MAX_BUCKETS} engines are being served")
        with connection, shards:
            if refusal is not None:
                connection.send(msgspec.json.encode(refusal))
                return
            for name in shards.sizes():
                socket.send_fds(connection, [msgspec.json.encode(Handed(name))], [shards.descriptor(name)])

    def _send_buckets(
        self, connection: socket.socket, shards: SealedShards, memory: BucketMemory, version: int
    ) -> None:
        """To one engine, beside all others."""
        try:
            with connection, shards:
                connection.settimeout(self._timeout_s)
                buckets_send(
                    connection, shards, memory, bucket_bytes=self._bucket_bytes, on_bucket=self._on_bucket
                )
            logger.info("version %d was handed to an engine through %s", version, memory.name)
        except (OSError, msgspec.DecodeError, RuntimeError) as error:
            logger.warning("an engine did not take version %d through %s: %s", version, memory.name, error)
        finally:
            self._free_buckets.release()

    # Broadcasts.

    def _listen_collective(self) -> int:
        listening = self._bound()
        with self._bound() as store:
            self._store_port = store.getsockname()[1]
            self._store = TCPStore(
                _OWN_ADDRESS.get(self._listen_host, self._listen_host),
                self._store_port,
                is_master=True,
                wait_for_workers=False,
                master_listen_fd=store.detach(),
            )
        self._accept(listening, self._seat)
        threading.Thread(target=self._broadcast_rounds, name="weights-broadcast", daemon=True).start()
        port: int = listening.getsockname()[1]
        return port

    def _bound(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._listen_host else socket.AF_INET
        return socket.create_server((self._listen_host, 0), family=family)

    def _seat(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            self._joiners.put(_Joiner(connection, msgspec.json.decode(lines.readline(_ASK_BYTES), type=Ask)))

    def _broadcast_rounds(self) -> None:
        """For ever: whoever asks within a moment of the first is served together."""
        while True:
            joiners = [self._joiners.get()]
            until_s = time.monotonic() + self._gather_s
            with contextlib.suppress(queue.Empty):
                while len(joiners) < self._max_engines and (rest_s := until_s - time.monotonic()) > 0:
                    joiners.append(self._joiners.get(timeout=rest_s))
            try:
                self._broadcast(joiners)
            except (OSError, TransferFailed, RuntimeError) as error:
                logger.warning("weights were not broadcast to %d engines: %s", len(joiners), error)
            finally:
                for joiner in joiners:
                    joiner.connection.close()

    def _broadcast(self, joiners: list[_Joiner]) -> None:
        with self._lock:
            refusals = [self._refusal(joiner.ask, self._backend) for joiner in joiners]
            shards = self._shards.copy()  # the next version may replace them meanwhile
        with shards:
            seated = []
            for joiner, refusal in zip(joiners, refusals, strict=True):
                if refusal is None:
                    seated.append(joiner)
                else:
                    _tell(joiner, refusal)
            if seated:
                self._broadcast_to(seated, shards)

    def _broadcast_to(self, joiners: list[_Joiner], shards: SealedShards) -> None:
        assert self._backend is not None
        self._num_groups += 1
        name, num_ranks = f"group-{self._num_groups}", len(joiners) + 1
        for rank, joiner in enumerate(joiners, start=1):
            _tell(
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
        group = BroadcastGroup(
            self._store,
            name=name,
            rank=0,
            num_ranks=num_ranks,
            backend=self._backend,
            host=self._host if self._listen_host in _OWN_ADDRESS else self._listen_host,
            timeout_s=self._timeout_s,
        )
        with contextlib.closing(group):
            shards_send(group, shards, bucket_bytes=self._bucket_bytes, on_bucket=self._on_bucket)
        logger.info("version %d was broadcast to %d engines", joiners[0].ask.version, len(joiners))

    # Both.

    def _refusal(self, ask: Ask, backend: WeightTransport | None) -> Refusal | None:
        if not secrets.compare_digest(ask.token, self._token):
            return Refusal("the token is not that of the offer")
        if ask.version != self._version:
            return Refusal(f"version {ask.version} is no longer offered, version {self._version} is")
        if ask.backend is not backend:
            return Refusal(f"{ask.backend} was asked for, {backend} is offered")
        return None

    def _accept(self, listening: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        listening.listen()
        self._listening.append(listening)

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
                    logger.warning("an engine that asked for weights was not served: %s", error)
                    connection.close()

        threading.Thread(target=run, name="weights-offer", daemon=True).start()


def _tell(joiner: _Joiner, answer: Seat | Refusal) -> None:
    joiner.connection.sendall(msgspec.json.encode(answer) + b"\n")
