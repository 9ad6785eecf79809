"""Weights from a trainer's memory into any engine: served exactly as from files, the old ones until they are proven."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offering import WeightOffers
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import RawTensor
from seamlessflow_workers.weights.transports.file.sending import PublishedWeights, weights_publish
from seamlessflow_workers.weights.transports.sender import SenderSettings
from tests.contract.engine.conftest import EngineUnderTest, num_workers, tokens_of
from tests.contract.engine.test_engine_logprob_contract import PROMPT, TOLERANCE, reference_logprobs
from tests.fakes.tensors_in_memory import TensorsInMemory
from tests.fixtures.adapters import merge_adapter, save_adapter
from tests.fixtures.trainer_harness import JOB

TRANSPORTS = [WeightTransport.FILE, WeightTransport.IPC, WeightTransport.GLOO]
BUCKET_BYTES = 1 << 16
SHARD_BYTES = 1 << 19
Offering = Callable[..., PublishedWeights]


@pytest.fixture
def offered(tmp_path: Path) -> Iterator[Offering]:
    """Publishes what a folder holds as version 1 and offers it, as a trainer does."""
    opened: list[WeightOffers] = []

    def offer(folder: Path, transport: WeightTransport, *, adapter: bytes | None = None) -> PublishedWeights:
        versions = tmp_path / "versions"
        shards = SealedShards()
        held = TensorsInMemory()
        for file in sorted(folder.glob("*.safetensors")) if folder.is_dir() else [folder]:
            for name, tensor in load_file(file).items():
                raw = tensor.contiguous().numpy().tobytes()
                held[name] = RawTensor("F32", tuple(tensor.shape), raw, len(raw))
        published = weights_publish(
            versions,
            held,
            job_id=JOB,
            version=1,
            parent_version=0,
            dtype="float32",
            max_shard_bytes=SHARD_BYTES,
            adapter_config=adapter,
            sealed=shards,
        )
        if transport is WeightTransport.FILE:
            shards.close()
            return published
        settings = SenderSettings(bucket_bytes=BUCKET_BYTES, gather_s=0.0)
        opened.append(WeightOffers(versions, transport, settings))
        opened[-1].offer(shards, version=1, manifest_sha256=published.manifest_sha256)
        return published

    yield offer
    for offers in opened:
        offers.close()


async def update(engine: EngineUnderTest, folder: Path, transport: WeightTransport) -> None:
    staged = await engine.post("/stage_weights", {"path": str(folder), "transport": transport})
    assert (staged["transport"], staged["fallback"]) == (transport, "")
    await engine.update(folder, version="v2")


async def test_workers_read_the_model_about_once_between_them(
    real_engine: EngineUnderTest, device: torch.device
) -> None:
    """Each reads its part of what is cut, and all of the norms, which every worker has."""
    weights = real_engine.make_weights(2)
    staged = await real_engine.post("/stage_weights", {"path": str(weights), "transport": "file"})
    is_tied = real_engine.load_reference(None).config.tie_word_embeddings
    sizes = {
        name: tensor.nbytes
        for name, tensor in load_file(weights).items()
        if not (is_tied and name == "lm_head.weight")
    }
    num_all, num_norms = (
        sum(size for name, size in sizes.items() if part in name) for part in ("", "norm.weight")
    )
    num = num_workers(real_engine.kind, device)
    assert len(staged["staged_bytes"]) == num
    assert sum(staged["staged_bytes"]) == num_all + (num - 1) * num_norms
    assert max(staged["staged_bytes"]) < 1.1 * num_all / num


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_weights_are_served_exactly_and_the_old_ones_until_then(
    real_engine: EngineUnderTest, offered: Offering, transport: WeightTransport
) -> None:
    weights = real_engine.make_weights(2)
    published = offered(weights, transport)
    staged = await real_engine.post("/stage_weights", {"path": str(published.folder), "transport": transport})
    assert (staged["transport"], staged["fallback"]) == (transport, "")
    assert (staged["num_bytes"] > 0) == (transport is not WeightTransport.FILE)
    before, logprobs = await served(real_engine)
    assert error_of(real_engine, None, before, logprobs) < TOLERANCE
    assert await real_engine.get("/weight_info") == {"weight_version": "v1"}
    await real_engine.update(published.folder, version="v2")
    after, logprobs = await served(real_engine, version="v2")
    assert error_of(real_engine, weights, after, logprobs) < TOLERANCE


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_adapter_is_served_merged(
    real_engine: EngineUnderTest, offered: Offering, transport: WeightTransport, tmp_path: Path
) -> None:
    adapter = save_adapter(real_engine.load_reference(None), tmp_path / "adapter", seed=7, targets=())
    config = (adapter / "adapter_config.json").read_bytes()
    published = offered(adapter, transport, adapter=config)
    await update(real_engine, published.folder, transport)
    tokens, logprobs = await served(real_engine, version="v2")
    merged = merge_adapter(real_engine.load_reference(None), adapter)
    assert np.abs(reference_logprobs(merged, PROMPT, tokens) - logprobs).max() < TOLERANCE


async def test_transfer_that_fails_ends_at_the_files(real_engine: EngineUnderTest, offered: Offering) -> None:
    weights = real_engine.make_weights(2)
    published = offered(weights, WeightTransport.FILE)
    staged = await real_engine.post("/stage_weights", {"path": str(published.folder), "transport": "ipc"})
    assert staged["transport"] == WeightTransport.FILE
    assert staged["fallback"] == "no trainer offers this version by ipc"
    await real_engine.update(published.folder, version="v2")
    tokens, logprobs = await served(real_engine, version="v2")
    assert error_of(real_engine, weights, tokens, logprobs) < TOLERANCE


async def test_weights_that_do_not_fit_are_refused_before_anything_changes(
    real_engine: EngineUnderTest, offered: Offering, tmp_path: Path
) -> None:
    adapter = save_adapter(real_engine.load_reference(None), tmp_path / "adapter", seed=7, targets=())
    # Without its configuration: no model, and no adapter.
    published = offered(adapter, WeightTransport.IPC)
    body = {"path": str(published.folder), "transport": "ipc"}
    refusal = await real_engine.post("/stage_weights", body, status=500)
    assert "the old weights stay" in str(refusal)
    tokens, logprobs = await served(real_engine)
    assert error_of(real_engine, None, tokens, logprobs) < TOLERANCE


async def served(engine: EngineUnderTest, *, version: str = "v1") -> tuple[list[int], list[float]]:
    choice = (await engine.generate(PROMPT, max_tokens=30, seed=3, logprobs=0, ignore_eos=True))["choices"][0]
    assert choice["weight_versions"] == [{"version": version, "start": 0, "end": 30}]
    return tokens_of(choice)


def error_of(engine: EngineUnderTest, folder: Path | None, tokens: list[int], logprobs: list[float]) -> float:
    """The largest difference from the logprobs that transformers gives."""
    reference = reference_logprobs(engine.load_reference(folder), PROMPT, tokens)
    return float(np.abs(reference - logprobs).max())
