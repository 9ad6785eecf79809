"""Weights from a trainer's memory reach an engine on the device by each transport: the logprobs are
those of the files.

Between GPUs the broadcast is NCCL's, which puts no two ranks on one GPU, so with a single GPU this
case is skipped.
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
from seamlessflow_workers.weights.offering import WeightOffers
from seamlessflow_workers.weights.tensors import RawTensor
from seamlessflow_workers.weights.transports.file.sending import weights_publish
from seamlessflow_workers.weights.transports.sender import SenderSettings
from tests.fakes.tensors_in_memory import TensorsInMemory
from tests.fixtures.trainer_harness import DEADLINE_S, JOB, child_environment
from tests.gpu.conftest import Figures
from tests.gpu.models import VOCABULARY, build_model, load_plain, plain_logprobs
from tests.gpu.serving import runner_of, served

NUM_TOKENS = 32
BUCKET_BYTES = 1 << 17  # several of them
TOLERANCES = {"cpu": 5e-5, "cuda": 1e-3}
# For a broadcast on the last card, where there are several; the engine is on the first.
TRAINER = """
import sys
from pathlib import Path
import torch
from tests.gpu.test_weights_on_device import offer
if torch.cuda.is_available():
    torch.cuda.set_device(torch.cuda.device_count() - 1)
offers = offer(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
print("offered", flush=True)
sys.stdin.read()
"""


def offer(model: Path, versions: Path, transport: str) -> WeightOffers:
    """Do what a trainer does with version 1, whose weights are those of `model`."""
    offers = WeightOffers(
        versions,
        WeightTransport(transport),
        SenderSettings(bucket_bytes=BUCKET_BYTES),
        has_cuda=torch.cuda.is_available(),
    )
    held, shards = TensorsInMemory(), offers.shards()
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

    def start(model: Path, transport: WeightTransport) -> Path:
        versions = tmp_path / "versions"
        command = [sys.executable, "-c", TRAINER, str(model), str(versions), transport]
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


@pytest.mark.parametrize("way", ["ipc", "broadcast"])
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
