"""An adapter over the engine's model: served exactly as peft merges it, always over the model's own weights."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from seamlessflow_workers.rollout.engine.model.loading import Backend, LoadOptions, load_runner
from seamlessflow_workers.weights.manifest import ADAPTER_CONFIG_NAME, ADAPTER_SHARD_NAME
from tests.contract.engine.conftest import EngineUnderTest, Kind, StartEngine, tokens_of
from tests.contract.engine.test_engine_logprob_contract import PROMPT, TOLERANCE, reference_logprobs
from tests.fixtures.adapters import merge_adapter, save_adapter

PARAMS: dict[str, Any] = {"max_tokens": 30, "seed": 3, "logprobs": 0, "ignore_eos": True}
ATTENTION = (
    "q_proj",
    "o_proj",
)  # of queries, keys and values only one: engines that fuse them need the others
FEED_FORWARD = ("up_proj", "down_proj")
EVERYTHING: tuple[str, ...] = ()
MakeAdapter = Callable[..., Path]


@pytest.fixture
def make_adapter(tmp_path: Path) -> MakeAdapter:
    def make(engine: EngineUnderTest, name: str, targets: Sequence[str], *, seed: int = 7) -> Path:
        return save_adapter(engine.load_reference(None), tmp_path / name, seed=seed, targets=targets)

    return make


async def served(engine: EngineUnderTest) -> tuple[list[int], list[float]]:
    return tokens_of((await engine.generate(PROMPT, **PARAMS))["choices"][0])


async def assert_serves(engine: EngineUnderTest, model: PreTrainedModel) -> None:
    ids, logprobs = await served(engine)
    assert np.abs(reference_logprobs(model, PROMPT, ids) - logprobs).max() < TOLERANCE


async def test_logprobs_are_those_of_the_model_that_peft_merges(
    real_engine: EngineUnderTest, make_adapter: MakeAdapter
) -> None:
    adapter = make_adapter(real_engine, "adapter", EVERYTHING)
    await real_engine.update(adapter, version="v2")
    await assert_serves(real_engine, merge_adapter(real_engine.load_reference(None), adapter))
    ids, logprobs = await served(real_engine)
    plain = reference_logprobs(real_engine.load_reference(None), PROMPT, ids)
    assert np.abs(plain - logprobs).max() > 0.1  # the adapter shows
    assert await real_engine.get("/weight_info") == {"weight_version": "v2"}


async def test_each_adapter_is_over_the_models_own_weights_whatever_was_served_before(
    real_engine: EngineUnderTest, make_adapter: MakeAdapter
) -> None:
    """Layers that only the one before changed are given back, also after weights that are no adapter."""
    first = make_adapter(real_engine, "first", ATTENTION)
    second = make_adapter(real_engine, "second", FEED_FORWARD, seed=8)
    before = {first: real_engine.model_dir, second: real_engine.make_weights(2)}
    for adapter in (first, second, first):
        await real_engine.update(before[adapter], version="other")
        await real_engine.update(second if adapter is first else first, version="other")
        await real_engine.update(adapter, version="v2")
        await assert_serves(real_engine, merge_adapter(real_engine.load_reference(None), adapter))


async def test_model_itself_can_be_served_again(
    real_engine: EngineUnderTest, make_adapter: MakeAdapter
) -> None:
    await real_engine.update(make_adapter(real_engine, "adapter", EVERYTHING), version="v2")
    await real_engine.update(real_engine.model_dir, version="v3")
    await assert_serves(real_engine, real_engine.load_reference(None))


FLAWS = {
    "missing half": "pairs of lora_A and lora_B",
    "unknown layer": "layers.9.self_attn.q_proj.weight, which the model does not have",
    "rank": "has shape (3, ",
    "nan": "NaN or infinite",
    "broken": "cannot be read as safetensors",
    "another sum": "use_rslora True, which this engine does not support",
    "no configuration": "is not the configuration of an adapter",
}


@pytest.mark.parametrize("flaw", FLAWS)
async def test_flawed_adapter_changes_nothing(
    start_engine: StartEngine, make_adapter: MakeAdapter, flaw: str
) -> None:
    engine = await start_engine(Kind.QWEN3_TIED)
    sound = make_adapter(engine, "sound", ATTENTION, seed=1)
    await engine.update(sound, version="v1")
    adapter = make_adapter(engine, "flawed", ATTENTION)
    spoil(adapter, flaw)
    await engine.post("/start_weight_update")

    body = {"update_info": {"path": str(adapter)}}
    error = (await engine.post("/update_weights", body, status=500))["error"]

    assert FLAWS[flaw] in error["message"]
    await assert_serves(engine, merge_adapter(engine.load_reference(None), sound))
    assert await engine.get("/weight_info") == {"weight_version": "v1"}


def spoil(adapter: Path, flaw: str) -> None:
    tensors = load_file(adapter / ADAPTER_SHARD_NAME)
    config = json.loads((adapter / ADAPTER_CONFIG_NAME).read_text())
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    if flaw == "missing half":
        del tensors[name]
    elif flaw == "unknown layer":
        for part in ("lora_A", "lora_B"):
            tensor = tensors[f"base_model.model.model.layers.0.self_attn.q_proj.{part}.weight"]
            tensors[f"base_model.model.model.layers.9.self_attn.q_proj.{part}.weight"] = tensor.clone()
    elif flaw == "rank":
        tensors[name] = tensors[name][:3].clone()
    elif flaw == "nan":
        tensors[name][0, 0] = torch.nan
    elif flaw == "another sum":
        config["use_rslora"] = True
    elif flaw == "no configuration":
        del config["r"]
    save_file(tensors, adapter / ADAPTER_SHARD_NAME)
    (adapter / ADAPTER_CONFIG_NAME).write_text(json.dumps(config))
    if flaw == "broken":
        path = adapter / ADAPTER_SHARD_NAME
        path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("backend", [Backend.DENSE, Backend.GENERIC])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
async def test_engine_that_starts_with_an_adapter_equals_one_of_many_updates_to_the_bit(
    start_engine: StartEngine, make_adapter: MakeAdapter, backend: Backend, dtype: torch.dtype
) -> None:
    engine = await start_engine(Kind.QWEN3_TIED)
    adapter = make_adapter(engine, "adapter", EVERYTHING)

    def load(weights: Path | None) -> Any:
        return load_runner(
            LoadOptions(
                model=engine.model_dir,
                weights=weights,
                dtype=dtype,
                device=torch.device("cpu"),
                max_model_len=64,
                num_slots=1,
                backend=backend,
            )
        )

    other = make_adapter(engine, "other", EVERYTHING, seed=8)
    started, updated = load(adapter), load(None)
    for weights in (other, adapter) * 5:  # sums upon sums would differ by now
        updated.stage_weights(weights).apply()
    rounded = engine.load_reference(None)
    torch.nn.Module.to(torch.nn.Module.to(rounded, dtype), torch.float32)
    expected = merge_adapter(rounded, adapter).state_dict()
    for name, parameter in started._decoder.parameters.items():
        assert torch.equal(parameter, updated._decoder.parameters[name])
        # Base in the engine's format, the sum in float32, then rounded once.
        assert torch.allclose(parameter.float(), expected[name].to(dtype).float(), rtol=2**-7, atol=1e-6)
