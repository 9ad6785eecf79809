"""What a trainer offers beside a version's files, and which way an engine takes.

The trainer leaves `.offer.json` beside its versions: of the newest one, where and how its shards can be had from the
trainer's memory. The files remain the record: whoever finds no offer, a stale one, or fails on the way reads those.
Words of both sides lie here; nothing of a framework does.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.manifest import MANIFEST_NAME, manifest_digest

OFFER_NAME = ".offer.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # of the host, the same in its containers
_NETWORK = Path("/proc/self/ns/net")  # beyond which abstract sockets are not seen


class TransferFailed(RuntimeError):
    """The weights did not come by this transport, in one clause; those of the files are as good."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    manifest_sha256: str
    token: str  # whoever can read the artifacts may have the weights
    place: str  # where shared memory reaches
    socket: str | None = None  # ipc, cuda_ipc: name of an abstract unix socket
    memory: str | None = None  # cuda_ipc: of which card, in the words of `rollout.transfer.bucket_memory`
    host: str = ""  # collective: where the trainer listens
    port: int = 0
    backend: WeightTransport | None = None  # nccl or gloo; None: no collective is offered


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Engine → trainer, its only word but for `Taken`."""

    token: str
    version: int
    backend: WeightTransport = WeightTransport.IPC


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    reason: str


class Handed(msgspec.Struct, frozen=True, tag="handed"):
    """ipc: the descriptor of this shard comes along; one message a shard, then the end of the connection."""

    shard: str


class CudaHandle(msgspec.Struct, frozen=True, tag="cuda"):
    """Memory of a card as CUDA names it to other processes: what torch exports of a storage, word for word."""

    memory: bytes
    num_bytes: int
    offset: int
    counter: bytes
    counter_offset: int
    event: bytes
    must_wait: bool


class HostHandle(msgspec.Struct, frozen=True, tag="host"):
    """Memory of the host, as a path that a process of the same user can map."""

    path: str
    num_bytes: int


class Buckets(msgspec.Struct, frozen=True, tag="buckets"):
    """cuda_ipc: the one piece of memory through which all shards come, filled and emptied bucket by bucket."""

    handle: CudaHandle | HostHandle
    bucket_bytes: int
    shards: dict[str, int]  # bytes by name, in this order; each begins a bucket


class Filled(msgspec.Struct, frozen=True, tag="filled"):
    """Trainer → engine: the next bucket is there."""


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """Engine → trainer: it may be overwritten. After the last one the engine lets go of the memory and hangs up."""


class Seat(msgspec.Struct, frozen=True, tag="seat"):
    """collective: the engine's place in a group that exists for one transfer, and what is broadcast in it."""

    rank: int  # 0 is the trainer
    num_ranks: int
    store_port: int
    group: str
    bucket_bytes: int
    shards: dict[str, int]  # bytes by name, broadcast in this order in buckets of at most `bucket_bytes`


@dataclass(frozen=True, slots=True)
class Here:
    """An engine's side of the choice."""

    place: str
    device: str  # cpu or cuda
    memory: str = ""  # as in an offer


def place() -> str:
    """The same for processes of one host that can reach one another's abstract sockets."""
    return f"{_BOOT_ID.read_text().strip()}:{_NETWORK.stat().st_ino}"


def offer_write(versions: Path, offer: Offer) -> None:
    """Readable by this user alone, and whole."""
    aside = versions / f"{OFFER_NAME}.writing"
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(offer))
    aside.replace(versions / OFFER_NAME)


def offer_withdraw(versions: Path) -> None:
    with contextlib.suppress(OSError):
        (versions / OFFER_NAME).unlink()


def offer_of(folder: Path) -> Offer | None:
    """The offer of the version in this folder; None without one."""
    try:
        raw = (folder.parent / OFFER_NAME).read_bytes()
        manifest = (folder / MANIFEST_NAME).read_bytes()
    except OSError:
        return None
    try:
        offer = msgspec.json.decode(raw, type=Offer)
    except msgspec.DecodeError:
        return None
    return offer if offer.manifest_sha256 == manifest_digest(manifest) else None


def transport_choose(wanted: WeightTransport, offer: Offer | None, here: Here) -> WeightTransport:
    """The way to take; `auto`: same host → ipc; GPUs on both sides → nccl; else file. Never cuda_ipc: decision 0022.

    Raises TransferFailed where one was asked for by name that cannot be.
    """
    if wanted is WeightTransport.FILE:
        return wanted
    if offer is None:
        if wanted is WeightTransport.AUTO:
            return WeightTransport.FILE
        raise TransferFailed(f"no trainer offers this version by {wanted}")
    if wanted is WeightTransport.AUTO:
        return _best(offer, here)
    if problem := _problem(wanted, offer, here):
        raise TransferFailed(f"{wanted} cannot be: {problem}")
    return wanted


def _best(offer: Offer, here: Here) -> WeightTransport:
    for transport in (WeightTransport.IPC, WeightTransport.NCCL):
        if not _problem(transport, offer, here):
            return transport
    return WeightTransport.FILE


def _problem(transport: WeightTransport, offer: Offer, here: Here) -> str:
    """Why not; nothing where it can."""
    if transport in (WeightTransport.IPC, WeightTransport.CUDA_IPC):
        if offer.socket is None or (transport is WeightTransport.CUDA_IPC and offer.memory is None):
            return "the trainer does not offer it"
        if offer.place != here.place:
            return "trainer and engine are on different hosts"
        if transport is WeightTransport.CUDA_IPC and offer.memory != here.memory:
            return f"the trainer hands out memory of {offer.memory}, this engine computes in that of {here.memory}"
        return ""
    if transport is WeightTransport.NCCL and here.device != "cuda":
        return f"this engine computes on {here.device}"
    return "" if offer.backend is transport else "the trainer does not offer it"
