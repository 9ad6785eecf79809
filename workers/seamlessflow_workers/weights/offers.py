"""What a trainer offers beside a version's files, and how an engine asks for it.

The trainer leaves `.offer.json` beside its versions: of the newest one, where and how its shards can be had from the
trainer's memory. The files remain the record: whoever finds no offer, a stale one, or fails on the way reads those.
Here are the words of both sides that no transport has for itself; nothing of a framework is among them.
"""

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.manifest import MANIFEST_NAME, manifest_digest

OFFER_NAME = ".offer.json"
TIMEOUT_S = 30.0  # for which either side waits for the other
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
    memory: str | None = None  # cuda_ipc: of which card, in the words of `transports.cuda_ipc.memory`
    host: str = ""  # collective: where the trainer listens
    port: int = 0
    backend: WeightTransport | None = None  # nccl or gloo; None: no collective is offered


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Engine → trainer: the first word of every transport."""

    token: str
    version: int
    backend: WeightTransport = WeightTransport.IPC


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    reason: str


@dataclass(frozen=True, slots=True)
class Here:
    """An engine's side of the choice."""

    place: str
    device: str  # cpu or cuda
    memory: str = ""  # as in an offer


class WeightsError(ValueError):
    """The weights that came do not fit the model; nothing was changed."""


@dataclass(slots=True)
class Arrival:
    """How a version came, and where it can be read until `close`."""

    folder: Path
    transport: WeightTransport
    num_bytes: int = 0
    seconds: float = 0.0
    fallback: str = ""  # why it was read from the files after all
    _release: Callable[[], None] | None = field(
        default=None, repr=False
    )  # of a folder that links into memory

    def close(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None
            shutil.rmtree(self.folder, ignore_errors=True)


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
    """Return the offer of the version in this folder; None without one."""
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
