"""Run as a script with the folder of `tests.fakes.mixture_models` and an empty one: train, publish, serve.

Prints one JSON line per family and ZeRO stage: how far a step in float32 is from float64, and how far an engine that
got the published files is from the trainer, in logprobs and in the experts that it chooses.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.rollout.engine.model.generic_decoder import GenericDecoder
from seamlessflow_workers.rollout.engine.model.kv_cache import CacheShape, KVCache
from seamlessflow_workers.rollout.engine.model.loading import LoadOptions, load_runner
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group
from seamlessflow_workers.weights.model_folder import folder_shapes
from seamlessflow_workers.weights.transports.file.sending import weights_publish
from tests.fakes.mixture_models import FAMILIES
from tests.fixtures.trainer_harness import VOCABULARY, make_batch, make_spec
from tests.integration.workers.train.step.trainer_deepspeed_check import (
    BETA1,
    TEMPERATURE,
    exact_logprobs,
    first_moment,
    oracle_of,
)

CASES = (("qwen3_moe", 1), ("deepseek_v3", 3))  # family and ZeRO stage
LENGTH = 48
OPTIONS = {"max_grad_norm": 1000.0, "adam_betas": (BETA1, 0.95), "warmup_updates": 0}


def spec_of(stage: int, *, dtype: str = "float32", **train: Any) -> JobSpec:
    spec = make_spec(**OPTIONS, zero_stage=stage, **train)
    model = {"source": "artifact://test", "dtype": dtype}
    return JobSpec.model_validate({**spec, "model": model, "algorithm": {"name": "dapo"}})


def exact_model(path: Path) -> PreTrainedModel:
    """In float64, which torch's grouped product does not take."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64)
    assert isinstance(model, PreTrainedModel)
    model.set_experts_implementation("eager")
    return model


def noisy_batch(exact: nn.Module, number: int = 1) -> Batch:
    """The sampler is a little off the policy, so that some ratios are clipped."""
    batch = make_batch(number, temperature=TEMPERATURE)
    logprobs = exact_logprobs(exact, batch).detach().numpy()
    noise = np.random.default_rng(number).normal(0, 0.2, size=len(batch.loss_mask))
    behaviour = (logprobs + noise) * (batch.loss_mask != 0)
    return dataclasses.replace(batch, behaviour_logprobs=behaviour.astype(np.float32))


@contextmanager
def choices_of(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collects the experts that each router chooses, [tokens, k] with ascending numbers."""
    chosen: list[Tensor] = []
    routers = [module for name, module in model.named_modules() if name.endswith(".mlp.gate")]
    hooks = [
        router.register_forward_hook(lambda _module, _inputs, output: chosen.append(output[-1].sort(-1)[0]))
        for router in routers
    ]
    yield chosen
    for hook in hooks:
        hook.remove()


def served(decoder: GenericDecoder, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Logprobs [T, V] and chosen experts [T, layers x k] of an engine that decodes token by token."""
    shape = CacheShape(
        decoder.num_layers, 1, decoder.num_kv_heads, len(tokens), decoder.key_dim, decoder.value_dim
    )
    cache = KVCache(shape, dtype=decoder.dtype, device=decoder.device)
    rows, chosen = [], []
    for place, token in enumerate(tokens):
        position = torch.tensor([[place]])
        cache.aim(rows=torch.zeros(1, dtype=torch.long), write_positions=position, num_positions=place + 1,
                  is_dense=True)  # fmt: skip
        with choices_of(decoder._model) as found:
            logits = decoder.forward(
                tokens=token[None, None], positions=position, mask=torch.zeros(1, 1, 1, place + 1),
                last=torch.zeros(1, dtype=torch.long), cache=cache,
            )  # fmt: skip
        rows.append(logits[0])
        chosen.append(torch.cat(found, 1)[0])
    return torch.stack(rows).log_softmax(-1), torch.stack(chosen)


def engine_with_version(
    engine: TrainEngine, model_path: Path, folder: Path, dtype: torch.dtype
) -> GenericDecoder:
    """An engine that loads what the trainer publishes; its own weights are random before."""
    version = weights_publish(
        folder,
        engine,
        job_id=UUID(int=1),
        version=1,
        parent_version=0,
        dtype="float32",
        max_bucket_bytes=4096,
        adapter_config=engine.adapter_config,
    )
    options = LoadOptions(
        model=model_path, weights=version.folder, dtype=dtype, device=torch.device("cpu"), max_model_len=LENGTH,
        num_slots=1,
    )  # fmt: skip
    decoder = load_runner(options)._decoder
    assert isinstance(decoder, GenericDecoder)
    return decoder


@torch.no_grad()
def round_trip(engine: TrainEngine, model_path: Path, folder: Path) -> dict[str, Any]:
    decoder = engine_with_version(engine, model_path, folder, torch.float32)
    tokens = torch.randint(VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(2))
    untrained = AutoModelForCausalLM.from_pretrained(model_path)
    policy = engine._engine.module.model
    policy.set_attn_implementation("sdpa")  # a tree's takes only trees
    with choices_of(policy) as found:
        expected = policy(input_ids=tokens[None], use_cache=False).logits[0].log_softmax(-1)
    logprobs, chosen = served(decoder, tokens)
    before = untrained(input_ids=tokens[None], use_cache=False).logits[0].log_softmax(-1)
    published, own = set(engine.layouts()), set(folder_shapes(model_path))
    return {
        "logprob_error": float((logprobs - expected).abs().max()),
        "logprob_change": float((before - expected).abs().max()),
        "is_routed_alike": torch.equal(chosen, torch.cat(found, 1)),
        "num_choices": len(chosen.unique()),
        "left_out": sorted(own - published),
        "added": sorted(published - own),
    }


def check(family: str, stage: int, models: Path, folder: Path) -> dict[str, Any]:
    model_path = models / family
    exact = exact_model(model_path)
    batch, spec = noisy_batch(exact), spec_of(stage)
    logprobs = exact_logprobs(exact, batch)
    oracle = oracle_of(batch, logprobs, spec)
    logprobs.backward(torch.from_numpy(np.concatenate(oracle.gradients)))
    gradients = {name: parameter.grad for name, parameter in exact.named_parameters()}
    engine = TrainEngine(model_path, spec)
    metrics = engine.step(batch, step_version=0, optimizer_step=1)
    worst = 0.0
    for name, parameter in engine._engine.module.named_parameters():
        expected = gradients[name.removeprefix("model.")]
        assert expected is not None
        worst = max(worst, float((first_moment(engine, parameter) / (1 - BETA1) - expected).abs().max()))
    norm = float(torch.stack([g.norm() for g in gradients.values() if g is not None]).norm())
    return {
        "case": f"{family}, stage {stage}",
        "loss_error": abs(metrics["train/loss"] - oracle.loss),
        "worst_gradient_error": worst,
        "grad_norm": norm,
        "grad_norm_error": abs(metrics["train/grad_norm"] - norm) / norm,
        **round_trip(engine, model_path, folder / f"{family}-{stage}"),
    }


def adapted(family: str, models: Path, folder: Path) -> dict[str, Any]:
    """An adapter after two steps, of which the first leaves A as it is."""
    model_path = models / family
    engine = TrainEngine(model_path, spec_of(1, lora={"rank": 4}))
    for step in (1, 2):
        engine.step(noisy_batch(exact_model(model_path), step), step_version=step - 1, optimizer_step=step)
    layers = sorted({name.split(".")[-3] for name in engine.layouts()})
    row = round_trip(engine, model_path, folder / f"{family}-adapted")
    return {"case": f"{family}, adapter", "layers": layers, **row}


def frozen(models: Path, folder: Path) -> dict[str, Any]:
    """Routers that are kept: which tensors a step changes, and whether a checkpoint without them can be read."""
    model_path = models / "qwen3_moe"
    engine = TrainEngine(model_path, spec_of(2, freeze_router=True))
    before = engine.tensors()
    engine.step(noisy_batch(exact_model(model_path)), step_version=0, optimizer_step=1)
    after = engine.tensors()
    engine.state_save(folder / "frozen", "state")
    engine.state_saved(waits=True)
    fresh = TrainEngine(model_path, spec_of(2, freeze_router=True))
    fresh.state_load(folder / "frozen", "state")
    resumed = fresh.tensors()
    return {
        "case": "frozen routers",
        "changed": [name for name, raw in after.items() if bytes(raw.data) != bytes(before[name].data)],
        "is_resumed": all(bytes(raw.data) == bytes(resumed[name].data) for name, raw in after.items()),
    }


def narrow(models: Path, folder: Path) -> dict[str, Any]:
    """A trainer and an engine in bfloat16: what of their weights differs, and what is wider."""
    model_path = models / "deepseek_v3"
    engine = TrainEngine(model_path, spec_of(1, dtype="bfloat16"))
    engine.step(noisy_batch(exact_model(model_path)), step_version=0, optimizer_step=1)
    decoder = engine_with_version(engine, model_path, folder / "narrow", torch.bfloat16)
    trained = engine.tensors()
    served = {name: tensor.contiguous().view(torch.uint8) for name, tensor in decoder.parameters.items()}
    return {
        "case": "bfloat16",
        "differing": [
            name for name, raw in served.items() if raw.numpy().tobytes() != bytes(trained[name].data)
        ],
        "wide": sorted(name for name, raw in trained.items() if raw.dtype == "F32"),
        "num_tensors": len(served),
    }


def main(models: Path, folder: Path) -> None:
    print(json.dumps(narrow(models, folder)), flush=True)
    print(json.dumps(frozen(models, folder)), flush=True)
    for family in FAMILIES:
        print(json.dumps(adapted(family, models, folder)), flush=True)
    for family, stage in CASES:
        print(json.dumps(check(family, stage, models, folder)), flush=True)


if __name__ == "__main__":
    with process_group():
        main(*map(Path, sys.argv[1:]))
