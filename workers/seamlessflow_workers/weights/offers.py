"""A trainer's offer beside a version's files, how an engine asks for it, and how the version came.

The trainer writes `.offer.json` beside its versions. It says where and how engines can get the shards of the newest
version from the trainer's memory. The files remain the record: an engine that finds no offer or a stale one, or whose
transfer fails, reads them. This module has the terms common to all transports, without any framework.
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
TIMEOUT_S = 30.0  # how long either side waits for the other
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # of the host, the same in its containers
_NETWORK = Path("/proc/self/ns/net")  # abstract sockets are not visible beyond it


class TransferFailed(RuntimeError):
    """The weights did not come by this transport; the message says why in one clause. The files still have them."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    manifest_sha256: str
    token: str  # anyone who can read the artifacts may have the weights
    host_id: str = msgspec.field(name="place")  # the host, as far as shared memory reaches
    socket: str | None = None  # ipc: name of an abstract unix socket
    host: str = ""  # collective: where the trainer listens
    port: int = 0
    backend: WeightTransport | None = None  # nccl or gloo; None: no collective is offered


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Engine → trainer: the first message of every transport."""

    token: str
    version: int
    backend: WeightTransport = WeightTransport.IPC


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    reason: str


@dataclass(frozen=True, slots=True)
class EngineLocation:
    """Where an engine is, for the choice of a transport."""

    host_id: str
    device: str  # cpu or cuda


class WeightsError(ValueError):
    """The weights that came do not fit the model; nothing was changed."""


@dataclass(slots=True)
class Arrival:
    """How a version came, and the folder where it can be read until `close`."""

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


def host_id() -> str:
    """Return a name that is equal for processes that can reach one another's abstract sockets on one host."""
    return f"{_BOOT_ID.read_text().strip()}:{_NETWORK.stat().st_ino}"


def offer_write(versions: Path, offer: Offer) -> None:
    """Write the offer in one step, readable by this user only."""
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
    """Return the offer of the version in this folder; None if there is none."""
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
