"""The shards of a published version, from wherever the engine can have them fastest.

A version's folder and a transport enter; a folder with the same shards leaves, the version's own or one of links into
this process's memory. What did not come by a file is proven by the manifest's checksums before anyone may read it. A
transfer that fails in any way ends at the files, and says why.
"""

import hashlib
import shutil
import socket
import struct
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.manifest import Manifest, WeightsReadError, manifest_read
from seamlessflow_workers.weights.offers import (
    Ask,
    Handed,
    Here,
    Offer,
    Refusal,
    Seat,
    TransferFailed,
    offer_of,
    place,
    transport_choose,
)
from seamlessflow_workers.weights.sealed_shards import SealedShards, is_sealed

TIMEOUT_S = 30.0
NUM_TRIES = 2  # the second in a group without whoever spoilt the first
MESSAGE_BYTES = 65_536
_DIGEST_THREADS = 8
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


@dataclass(slots=True)
class Arrival:
    """How a version came, and where it can be read until `close`."""

    folder: Path
    transport: WeightTransport
    num_bytes: int = 0
    seconds: float = 0.0
    fallback: str = ""  # why it is the files after all
    _shards: SealedShards | None = field(default=None, repr=False)

    def close(self) -> None:
        if self._shards is not None:
            self._shards.close()
            self._shards = None
            shutil.rmtree(self.folder, ignore_errors=True)


def weights_receive(
    folder: Path, wanted: WeightTransport, *, device: str, timeout_s: float = TIMEOUT_S
) -> Arrival:
    """Never raises for a transfer: the files are always there."""
    started_s = time.monotonic()
    try:
        offer = None if wanted is WeightTransport.FILE else offer_of(folder)
        transport = transport_choose(wanted, offer, Here(place=place(), device=device))
        if offer is None or transport is WeightTransport.FILE:
            return Arrival(folder, WeightTransport.FILE, seconds=time.monotonic() - started_s)
        shards = _receive(folder, offer, transport, timeout_s)
    except (TransferFailed, WeightsReadError) as error:
        seconds = time.monotonic() - started_s
        return Arrival(folder, WeightTransport.FILE, seconds=seconds, fallback=str(error))
    return Arrival(
        _linked(folder, shards),
        transport,
        num_bytes=sum(shards.sizes().values()),
        seconds=time.monotonic() - started_s,
        _shards=shards,
    )


def _receive(folder: Path, offer: Offer, transport: WeightTransport, timeout_s: float) -> SealedShards:
    """Proven shards. Raises TransferFailed, WeightsReadError."""
    manifest = manifest_read(folder)
    is_ipc = transport is WeightTransport.IPC
    shards = _take_over(offer, timeout_s) if is_ipc else _join(offer, transport, timeout_s)
    try:
        _prove(shards, manifest)
    except TransferFailed:
        shards.close()
        raise
    return shards


def _take_over(offer: Offer, timeout_s: float) -> SealedShards:
    """The trainer's own memory, shard by shard."""
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


def trainer_ask(offer: Offer, transport: WeightTransport, timeout_s: float) -> socket.socket:
    """A connection to the trainer of this host, which has been asked. Raises OSError, TransferFailed."""
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
    """An abstract name can be taken by anyone on the host. Raises TransferFailed unless it is this user's."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(raw)
    if user != _user():
        raise TransferFailed(f"the socket belongs to user {user}")


def _user() -> int:
    return Path("/proc/self").stat().st_uid


def _join(offer: Offer, backend: WeightTransport, timeout_s: float) -> SealedShards:
    """A broadcast; in another group if the first was spoilt. Raises TransferFailed."""
    for number in range(1, NUM_TRIES + 1):
        try:
            return _join_once(offer, backend, timeout_s)
        except TransferFailed:
            if number == NUM_TRIES:
                raise
    raise AssertionError("unreachable")


def _join_once(offer: Offer, backend: WeightTransport, timeout_s: float) -> SealedShards:
    # Not above: shared memory and files need no torch. Not below: whoever has a seat is waited for.
    from seamlessflow_workers.rollout.transfer.broadcast import seat_take

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
        raise TransferFailed(f"the trainer that offered the weights: {error}") from error


def _prove(shards: SealedShards, manifest: Manifest) -> None:
    """Raises TransferFailed unless these are exactly the shards of the manifest."""
    if shards.sizes().keys() != manifest.shards.keys():
        raise TransferFailed(f"{len(shards.sizes())} shards came, the manifest has {len(manifest.shards)}")
    with ThreadPoolExecutor(_DIGEST_THREADS) as threads:
        digests = list(threads.map(lambda name: _digest(shards, name), manifest.shards))
    for (name, entry), digest in zip(manifest.shards.items(), digests, strict=True):
        if digest != entry.sha256:
            raise TransferFailed(
                f"shard {name} was damaged on the way: sha256 {digest}, the manifest says {entry.sha256}"
            )


def _digest(shards: SealedShards, name: str) -> str:
    with shards.map(name) as shard:
        return hashlib.sha256(shard).hexdigest()


def _linked(folder: Path, shards: SealedShards) -> Path:
    """A folder that reads like the version's own, its shards from memory."""
    links = Path(tempfile.mkdtemp(prefix="seamlessflow-weights-"))
    for entry in folder.iterdir():
        (links / entry.name).symlink_to(shards.path(entry.name) if entry.name in shards.sizes() else entry)
    return links
