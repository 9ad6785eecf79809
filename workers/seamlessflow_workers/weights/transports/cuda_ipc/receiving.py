"""The engine's side: it copies a version's shards from the bucket that it shares with the trainer to its own memory.

The GPU holds one bucket beside the engine's copy, whatever the size of the model, and the complete copy depends on no
other process. It is checked against the manifest's fingerprints, computed where it lies, before anyone can use it.
"""

import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.fingerprint import WORD_BYTES, fingerprint_show, words_mix
from seamlessflow_workers.weights.manifest import Manifest, WeightsReadError, manifest_read
from seamlessflow_workers.weights.offers import (
    TIMEOUT_S,
    Arrival,
    Here,
    Offer,
    Refusal,
    TransferFailed,
    WeightsError,
    offer_of,
    place,
)
from seamlessflow_workers.weights.transports.cuda_ipc.memory import BucketMemory, Buckets, Filled, Taken
from seamlessflow_workers.weights.transports.host_socket import MESSAGE_BYTES, trainer_ask
from seamlessflow_workers.weights.transports.table import transport_choose

_PROOF_WORDS = 1 << 22  # per pass: 32 MiB, plus twice that for intermediate results
_HEADER_LENGTH_BYTES = 8
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
Shards = dict[str, Tensor]  # by name, the bytes of a safetensors file [num_bytes], uint8


def buckets_receive(
    folder: Path, memory: BucketMemory, *, timeout_s: float = TIMEOUT_S
) -> tuple[Arrival, Shards]:
    """Return how a version came and its checked shards; no shards if it must be read from its files (`fallback`)."""
    started_s = time.monotonic()
    try:
        offer = offer_of(folder)
        here = Here(place=place(), device=memory.device.type, memory=memory.name)
        transport_choose(WeightTransport.CUDA_IPC, offer, here)
        assert offer is not None
        shards = _take(offer, manifest_read(folder), memory, timeout_s)
    except (TransferFailed, WeightsReadError) as error:
        seconds = time.monotonic() - started_s
        return Arrival(folder, WeightTransport.FILE, seconds=seconds, fallback=str(error)), {}
    num_bytes = sum(map(len, shards.values()))
    return Arrival(folder, WeightTransport.CUDA_IPC, num_bytes, time.monotonic() - started_s), shards


def _take(offer: Offer, manifest: Manifest, memory: BucketMemory, timeout_s: float) -> Shards:
    """Return checked shards in this GPU's memory. Raises TransferFailed."""
    try:
        with trainer_ask(offer, WeightTransport.CUDA_IPC, timeout_s) as connection:
            raw = connection.recv(MESSAGE_BYTES)
            if not raw:
                raise TransferFailed("the trainer that offered the weights closed the connection")
            answer = msgspec.json.decode(raw, type=Buckets | Refusal)
            if isinstance(answer, Refusal):
                raise TransferFailed(f"the trainer refused: {answer.reason}")
            shards = _copy_all(connection, answer, manifest, memory)
        with memory.working():
            _prove(shards, manifest)
    except (OSError, msgspec.DecodeError) as error:
        raise TransferFailed(
            f"the transfer from the trainer that offered the weights failed: {error}"
        ) from error
    except RuntimeError as error:  # from torch: no room on the GPU, or memory that cannot be mapped
        if isinstance(error, TransferFailed):
            raise
        raise TransferFailed(f"{memory.name}: {_first_line(error)}") from error
    return {name: shard[: manifest.shards[name].num_bytes] for name, shard in shards.items()}


def _copy_all(
    connection: socket.socket, offered: Buckets, manifest: Manifest, memory: BucketMemory
) -> Shards:
    """Copy all shards to our own memory, padded with zeros to whole words."""
    if offered.shards != {name: entry.num_bytes for name, entry in manifest.shards.items()}:
        raise TransferFailed("the trainer's shards are not those of the manifest")
    if offered.bucket_bytes < WORD_BYTES:
        raise TransferFailed(f"the trainer's buckets have only {offered.bucket_bytes} bytes")
    shards = {
        name: torch.zeros(-(-num_bytes // WORD_BYTES) * WORD_BYTES, dtype=torch.uint8, device=memory.device)
        for name, num_bytes in offered.shards.items()
    }
    bucket = memory.map(offered.handle)
    for name, num_bytes in offered.shards.items():
        for part in shards[name][:num_bytes].split(offered.bucket_bytes):
            msgspec.json.decode(connection.recv(MESSAGE_BYTES), type=Filled)
            with memory.working():
                part.copy_(bucket[: len(part)])
            connection.send(msgspec.json.encode(Taken()))
    return shards


def _prove(shards: Shards, manifest: Manifest) -> None:
    """Check that these are the bytes that the manifest describes. Raises TransferFailed."""
    for name, shard in shards.items():
        expected, mark = manifest.shards[name].fingerprint, fingerprint_of(shard)
        if expected is None:
            raise TransferFailed(f"the manifest has no fingerprint of shard {name}")
        if mark != expected:
            raise TransferFailed(
                f"shard {name} was damaged on the way: its fingerprint is {mark}, the manifest says {expected}"
            )


def fingerprint_of(shard: Tensor) -> str:
    """Return the fingerprint (`weights.fingerprint`) of bytes, [a multiple of 8], computed on their device."""
    total, first = 0, 0
    for words in shard.view(torch.int64).split(_PROOF_WORDS):
        total += words_mix(words, torch.arange(first, first + len(words), device=shard.device))
        first += len(words)
    return fingerprint_show(total)


def shards_tensors(shards: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors in these shards by name, as views of the same memory. Raises WeightsError."""
    tensors: dict[str, Tensor] = {}
    for shard, content in shards.items():
        try:
            tensors |= _tensors_of(content)
        except (ValueError, KeyError, TypeError, RuntimeError) as error:
            raise WeightsError(f"{shard} cannot be read as safetensors: {error!r}") from error
    return tensors


def _tensors_of(content: Tensor) -> dict[str, Tensor]:
    """Parse the safetensors layout: 8 bytes of header length, a JSON header, data."""
    begin = _HEADER_LENGTH_BYTES + int.from_bytes(_host_bytes(content[:_HEADER_LENGTH_BYTES]), "little")
    header = json.loads(_host_bytes(content[_HEADER_LENGTH_BYTES:begin]))
    data, tensors = content[begin:], {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, end = entry["data_offsets"]
        dtype, raw = _DTYPES[entry["dtype"]], data[first:end]
        if raw.storage_offset() % dtype.itemsize:
            raw = raw.clone()  # not aligned, because an odd number of narrower values precedes it
        tensors[name] = raw.view(dtype).reshape(entry["shape"])
    return tensors


def _host_bytes(part: Tensor) -> bytes:
    return bytes(part.cpu().numpy())


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
