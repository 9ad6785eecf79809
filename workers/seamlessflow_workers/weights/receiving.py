"""Receives the shards of a published version by the way that the engine can get them fastest.

It takes a version's folder and a transport, and returns a folder with the same shards: the version's own, or one with
links into this process's memory. Shards that did not come from files are checked against the manifest before anyone may
read them. If a transfer fails in any way, the arrival is the version's own folder and says why.
"""

import hashlib
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.manifest import WeightsManifest, WeightsReadError, manifest_read
from seamlessflow_workers.weights.offers import (
    TIMEOUT_S,
    Arrival,
    EngineLocation,
    Offer,
    TransferFailed,
    host_id,
    offer_of,
)
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.transports.table import TRANSPORTS, Receive, transport_choose

_DIGEST_THREADS = 8


def weights_receive(
    folder: Path, wanted: WeightTransport, *, device: str, timeout_s: float = TIMEOUT_S
) -> Arrival:
    """Receive a version. A failed transfer does not raise, because the files are always there."""
    started_s = time.monotonic()
    try:
        offer = None if wanted is WeightTransport.FILE else offer_of(folder)
        transport = transport_choose(wanted, offer, EngineLocation(host_id=host_id(), device=device))
        receive = TRANSPORTS[transport].receive
        if offer is None or receive is None:
            return Arrival(folder, WeightTransport.FILE, seconds=time.monotonic() - started_s)
        shards = _receive(folder, offer, receive, timeout_s)
    except (TransferFailed, WeightsReadError) as error:
        seconds = time.monotonic() - started_s
        return Arrival(folder, WeightTransport.FILE, seconds=seconds, fallback=str(error))
    return Arrival(
        _linked(folder, shards),
        transport,
        num_bytes=sum(shards.sizes().values()),
        seconds=time.monotonic() - started_s,
        _release=shards.close,
    )


def _receive(folder: Path, offer: Offer, receive: Receive, timeout_s: float) -> SealedShards:
    """Return checked shards. Raises TransferFailed, WeightsReadError."""
    manifest = manifest_read(folder)
    shards = receive(offer, timeout_s)
    try:
        _prove(shards, manifest)
    except TransferFailed:
        shards.close()
        raise
    return shards


def _prove(shards: SealedShards, manifest: WeightsManifest) -> None:
    """Check that these are exactly the shards of the manifest. Raises TransferFailed."""
    if shards.sizes().keys() != manifest.shards.keys():
        raise TransferFailed(
            f"{len(shards.sizes())} shards arrived, but the manifest has {len(manifest.shards)}"
        )
    with ThreadPoolExecutor(_DIGEST_THREADS) as threads:
        digests = list(threads.map(lambda name: _digest(shards, name), manifest.shards))
    for (name, entry), digest in zip(manifest.shards.items(), digests, strict=True):
        if digest != entry.sha256:
            raise TransferFailed(
                f"shard {name} was damaged on the way: its sha256 is {digest}, the manifest says {entry.sha256}"
            )


def _digest(shards: SealedShards, name: str) -> str:
    with shards.map(name) as shard:
        return hashlib.sha256(shard).hexdigest()


def _linked(folder: Path, shards: SealedShards) -> Path:
    """Return a folder that reads like the version's own, with its shards in memory."""
    links = Path(tempfile.mkdtemp(prefix="seamlessflow-weights-"))
    for entry in folder.iterdir():
        (links / entry.name).symlink_to(shards.path(entry.name) if entry.name in shards.sizes() else entry)
    return links
