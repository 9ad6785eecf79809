"""Weights from a trainer's memory reach an engine on the device by each transport: the logprobs are
those of the files.

Between GPUs the broadcast is NCCL's, which puts no two ranks on one GPU, so with a single GPU this
case is skipped. Weights passed within a GPU are tested on the first one, also by a process that is
killed in the middle.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.fingerprint import Fingerprint
from seamlessflow_workers.weights.offering import WeightOffers
from seamlessflow_workers.weights.tensors import HeldTensors, RawTensor
from seamlessflow_workers.weights.transports.cuda_ipc.memory import memory_of
from seamlessflow_workers.weights.transports.cuda_ipc.receiving import fingerprint_of
from seamlessflow_workers.weights.transports.file.sending import weights_publish
from seamlessflow_workers.weights.transports.sender import SenderSettings
from tests.fixtures.trainer_harness import DEADLINE_S, JOB, child_environment
from tests.gpu.conftest import Figures
from tests.gpu.models import VOCABULARY, build_model, load_plain, plain_logprobs
from tests.gpu.serving import runner_of, served

NUM_TOKENS = 32
BUCKET_BYTES = 1 << 17  # several of them
TOLERANCES = {"cpu": 5e-5, "cuda": 1e-3}
# For a broadcast on the last card, where there are several; the engine is on the first.
TRAINER = """
import os, sys
from pathlib import Path
import torch
from tests.gpu.test_weights_on_device import offer
if torch.cuda.is_available() and sys.argv[3] != "cuda_ipc":
    torch.cuda.set_device(torch.cuda.device_count() - 1)
num_buckets = 0
def die_when_told():
    global num_buckets
    num_buckets += 1
    if num_buckets == int(sys.argv[4]):
        os.kill(os.getpid(), 9)
offers = offer(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], die_when_told)
print("offered", flush=True)
sys.stdin.read()
"""


def offer(model: Path, versions: Path, transport: str, on_bucket: Callable[[], None]) -> WeightOffers:
    """Do what a trainer does with version 1, whose weights are those of `model`."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    memory = memory_of(device) if transport == WeightTransport.CUDA_IPC else None
    offers = WeightOffers(
        versions,
        WeightTransport(transport),
        SenderSettings(memory=memory, bucket_bytes=BUCKET_BYTES, on_bucket=on_bucket),
        has_cuda=torch.cuda.is_available(),
    )
    held, shards = HeldTensors(), offers.shards()
    for file in sorted(model.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            raw = tensor.contiguous().numpy().tobytes()
            held[name] = RawTensor("F32", tuple(tensor.shape), raw, len(raw))
    published = weights_publish(
        versions, held, job_id=JOB, version=1, parent_version=0, dtype="float32", sealed=shards
    )
    offers.offer(shards, version=1, manifest_sha256=published.manifest_sha256)
    return offers


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Start a trainer that offers a model's weights; return the folder of its version."""
    processes: list[subprocess.Popen[str]] = []

    def start(model: Path, transport: WeightTransport, *, dies_at_bucket: int = 0) -> Path:
        versions = tmp_path / "versions"
        command = [sys.executable, "-c", TRAINER, str(model), str(versions), transport, str(dies_at_bucket)]
        process = subprocess.Popen(
            command, env=child_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "offered\n"
        return versions / "1"

    yield start
    for process in processes:
        process.communicate(timeout=DEADLINE_S)


@pytest.mark.parametrize("way", ["ipc", "cuda_ipc", "broadcast"])
async def test_weights_from_memory_are_served_on_the_device(
    device: torch.device,
    figures: Figures,
    trainer: Callable[..., Path],
    tmp_path: Path,
    way: str,
) -> None:
    between_cards = WeightTransport.NCCL if device.type == "cuda" else WeightTransport.GLOO
    transport = between_cards if way == "broadcast" else WeightTransport(way)
    if transport is WeightTransport.NCCL and torch.cuda.device_count() == 1:
        pytest.skip("NCCL puts no two ranks on one card: NO WEIGHTS WERE BROADCAST BETWEEN GPUS")
    model = build_model(tmp_path / "model", device=device, seed=0)
    other = build_model(tmp_path / "other", device=device, seed=1)
    folder = trainer(other, transport)
    prompt = np.random.default_rng(0).integers(3, VOCABULARY, size=24).tolist()

    async with served(runner_of(model, dtype=torch.float32, device=device)) as engine:
        staged = await engine.post("/stage_weights", {"path": str(folder), "transport": transport})
        assert (staged["transport"], staged["fallback"]) == (transport, "")
        await engine.update(folder, version="1")
        answer = await engine.generate(prompt, num_tokens=NUM_TOKENS)

    figures[f"weights by {transport}"] = {"MB": staged["num_bytes"] / 1e6, "seconds": staged["seconds"]}
    assert answer.versions == [{"version": "1", "start": 0, "end": NUM_TOKENS}]
    plain = load_plain(other, dtype=torch.float32, device=device)
    differences = np.abs(plain_logprobs(plain, prompt, answer.token_ids) - np.array(answer.logprobs))
    assert differences.max() < TOLERANCES[device.type]


async def test_a_trainer_killed_between_buckets_leaves_the_engine_its_device_and_the_files(
    device: torch.device, trainer: Callable[..., Path], tmp_path: Path
) -> None:
    model = build_model(tmp_path / "model", device=device, seed=0)
    other = build_model(tmp_path / "other", device=device, seed=1)
    folder = trainer(other, WeightTransport.CUDA_IPC, dies_at_bucket=3)
    prompt = np.random.default_rng(0).integers(3, VOCABULARY, size=24).tolist()

    async with served(runner_of(model, dtype=torch.float32, device=device)) as engine:
        staged = await engine.post(
            "/stage_weights", {"path": str(folder), "transport": WeightTransport.CUDA_IPC}
        )
        assert staged["transport"] == WeightTransport.FILE
        assert staged["fallback"]
        await engine.update(folder, version="1")
        answer = await engine.generate(prompt, num_tokens=NUM_TOKENS)
    plain = load_plain(other, dtype=torch.float32, device=device)
    differences = np.abs(plain_logprobs(plain, prompt, answer.token_ids) - np.array(answer.logprobs))
    assert differences.max() < TOLERANCES[device.type]


def test_fingerprint_on_the_device_is_that_of_the_bytes(device: torch.device) -> None:
    raw = np.random.default_rng(0).integers(0, 256, size=(40 << 20) + 8, dtype=np.uint8)
    mark = Fingerprint()
    mark.update(raw.data)
    assert fingerprint_of(torch.from_numpy(raw).to(device)) == mark.show()
