"""Trainers that offer a version and engines that take it, in this process or in one of their own."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offering import WeightOffers
from seamlessflow_workers.weights.offers import Arrival
from seamlessflow_workers.weights.receiving import weights_receive
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import RawTensor
from seamlessflow_workers.weights.transports.file.sending import PublishedWeights, weights_publish
from tests.fakes.tensors_in_memory import TensorsInMemory
from tests.fixtures.trainer_harness import JOB, child_environment

FILE, IPC, GLOO, AUTO, NCCL = (
    WeightTransport.FILE,
    WeightTransport.IPC,
    WeightTransport.GLOO,
    WeightTransport.AUTO,
    WeightTransport.NCCL,
)
FROM_MEMORY = (IPC, GLOO)
SHARD_BYTES = 6000  # the model below takes several
BUCKET_BYTES = 1024  # and each of them several broadcasts
GATHER_S = 0.5
DEADLINE_S = 60.0


def made(seed: int) -> TensorsInMemory:
    rng = np.random.default_rng(seed)
    held = TensorsInMemory()
    for number in range(8):
        values = rng.normal(size=(16, 8 * (number + 1))).astype(np.float32)
        held[f"layer.{number}.weight"] = RawTensor(
            dtype="F32", shape=values.shape, data=values.tobytes(), num_bytes=values.nbytes
        )
    return held


def publish(
    versions: Path, version: int, shards: SealedShards | None = None, *, adapter: bytes | None = None
) -> PublishedWeights:
    return weights_publish(
        versions,
        made(version),
        job_id=JOB,
        version=version,
        parent_version=version - 1,
        dtype="float32",
        max_shard_bytes=SHARD_BYTES,
        adapter_config=adapter,
        sealed=shards,
    )


def tensors_of(folder: Path) -> dict[str, Tensor]:
    return {name: t for file in sorted(folder.glob("*.safetensors")) for name, t in load_file(file).items()}


def assert_same(folder: Path, expected: Path) -> None:
    ours, theirs = tensors_of(folder), tensors_of(expected)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert {entry.name for entry in folder.iterdir()} == {entry.name for entry in expected.iterdir()}


def offer(offers: WeightOffers, versions: Path, version: int, **options: bytes) -> Path:
    shards = offers.shards()
    published = publish(versions, version, shards, **options)
    offers.offer(shards, version=version, manifest_sha256=published.manifest_sha256)
    return published.folder


def received(folder: Path, transport: WeightTransport) -> Arrival:
    return weights_receive(folder, transport, device="cpu")


ENGINE = """
import sys
from pathlib import Path
from seamlessflow.core.types.transports import WeightTransport
from tests.contract.weights.transport_harness import received
arrival = received(Path(sys.argv[1]), WeightTransport(sys.argv[2]))
files = {f.name: f.read_bytes() for f in arrival.folder.glob("*.safetensors")}
is_same = files == {f.name: f.read_bytes() for f in Path(sys.argv[1]).glob("*.safetensors")}
print(arrival.transport, "same" if is_same else "other", arrival.fallback, flush=True)
arrival.close()
"""
TRAINER = """
import os, sys
from pathlib import Path
from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offering import WeightOffers
from seamlessflow_workers.weights.transports.sender import SenderSettings
from tests.contract.weights.transport_harness import BUCKET_BYTES, offer
num_buckets = 0
def die_at_the_third():
    global num_buckets
    num_buckets += 1
    if num_buckets == 3:
        os.kill(os.getpid(), 9)
versions = Path(sys.argv[1])
settings = SenderSettings(bucket_bytes=BUCKET_BYTES, on_bucket=die_at_the_third)
offers = WeightOffers(versions, WeightTransport(sys.argv[2]), settings)
print(offer(offers, versions, 1), flush=True)
sys.stdin.read()
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
