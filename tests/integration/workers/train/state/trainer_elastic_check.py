"""Run as a script, by each rank: `MODEL FOLDER write`, then with another number of ranks `MODEL FOLDER read`.

Either makes an engine for each case. The writer takes two steps, prints digests of the state that DeepSpeed itself puts
together from all ranks, and saves it; the reader loads it, in another ZeRO stage too, and prints the same. Both then
take a third step and print its metrics.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
from torch import Tensor

from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step import deepspeed_config
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.trainer_harness import make_spec
from tests.integration.workers.train.step.trainer_critic_check import CRITIC, batch_for

TAG = "state"
METRICS = ("train/loss", "train/grad_norm")
MOMENTS = ("exp_avg", "exp_avg_sq")
# By name: number format, ZeRO stage of the writer, that of the reader, other changes of the spec, and how many elements
# the optimizer steps at a time, if fewer than usual.
CASES: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "float32 0": ("float32", 0, 0, {}),
    "float32 1": ("float32", 1, 1, {}),
    "float32 2 to 3": ("float32", 2, 3, {}),
    "float32 3": ("float32", 3, 3, {}),
    "float32 3 to 0": ("float32", 3, 0, {}),
    "float32 3 in groups": ("float32", 3, 3, {"group": 3000}),
    "bfloat16 0 to 1": ("bfloat16", 0, 1, {}),
    "bfloat16 1 to 0": ("bfloat16", 1, 0, {}),
    "bfloat16 3": ("bfloat16", 3, 3, {}),
    "adapter 2 to 3": ("float32", 2, 3, {"train": {"lora": {"rank": 3}}}),
    "offloaded 2 to 3": ("float32", 2, 3, {"train": {"offload": {"optimizer": True}}}),
    "critic 3 to 1": ("float32", 3, 1, {"algorithm": {"name": "ppo", "kl_coef": 0.0, "critic": CRITIC}}),
    "not stepped": ("float32", 2, 1, {}),
}


def engine_of(model: Path, name: str, *, is_writer: bool) -> TrainEngine:
    dtype, writers, readers, changes = CASES[name]
    plain = make_spec(zero_stage=writers if is_writer else readers, **changes.get("train", {}))
    algorithm = changes.get("algorithm", plain["algorithm"])
    own = {"model": {"source": "artifact://test", "dtype": dtype}, "algorithm": algorithm}
    group = changes.get("group", deepspeed_config._GROUP)
    with patch.object(deepspeed_config, "_GROUP", group):
        engine = TrainEngine(model, JobSpec.model_validate({**plain, **own}))
    assert "group" not in changes or len(engine._engine.optimizer.fp16_groups) > 1
    return engine


def engines_of(engine: TrainEngine) -> list[Any]:
    """Return DeepSpeed's engines: of the policy and, if there is one, of the critic."""
    critic = engine._critic
    return [engine._engine] if critic is None else [engine._engine, critic._engine]


def full_states(inner: Any) -> Iterator[tuple[str, str, Tensor]]:
    """Every trained parameter's float32 weights and moments as (name, kind, tensor), without the code under test."""
    is_plain = inner.zero_optimization_stage() == 0
    masters = {parameter: parameter for parameter in inner.module.parameters()}
    if is_plain and hasattr(inner.optimizer, "fp32_groups"):
        masters |= dict(zip(inner.optimizer.fp16_groups[0], inner.optimizer.fp32_groups[0], strict=True))
    for name, parameter in inner.module.named_parameters():
        if not parameter.requires_grad:
            continue
        if is_plain:
            master = masters[parameter]
            states = inner.basic_optimizer.state
            yield name, "param", master
            yield from ((name, kind, states[master][kind]) for kind in MOMENTS if master in states)
        else:
            yield name, "param", safe_get_full_fp32_param(parameter)
            if inner.basic_optimizer.state:
                yield from ((name, kind, safe_get_full_optimizer_state(parameter, kind)) for kind in MOMENTS)


def digest(tensors: Iterator[tuple[str, bytes]]) -> str:
    total = hashlib.sha256()
    for name, raw in tensors:
        total.update(name.encode())
        total.update(raw)
    return total.hexdigest()


def shown(engine: TrainEngine) -> dict[str, object]:
    inner = engines_of(engine)
    steps = {float(state["step"]) for one in inner for state in one.basic_optimizer.state.values()}
    return {
        "state": digest(
            (f"{name} {kind}", tensor.detach().float().contiguous().numpy().tobytes())
            for one in inner
            for name, kind, tensor in full_states(one)
        ),
        "weights": digest((name, bytes(raw.data)) for name, raw in sorted(engine.tensors().items())),
        "steps": sorted(steps),
        "random": digest(iter([("cpu", torch.get_rng_state().numpy().tobytes())])),
    }


def link_moments(engine: TrainEngine) -> None:
    """DeepSpeed's own reader of moments works only after a step of its own; a third step links them."""
    for inner in engines_of(engine):
        link = getattr(inner.optimizer, "_lazy_init_hp_params_optimizer_state", None)
        if link is not None and inner.basic_optimizer.state:
            link()


def main(model: Path, folder: Path, what: str) -> None:
    is_writer = what == "write"
    for name in CASES:
        engine = engine_of(model, name, is_writer=is_writer)
        place = folder / name.replace(" ", "-")
        place.mkdir(parents=True, exist_ok=True)
        is_stepped = name != "not stepped"
        if is_writer:
            for number in (1, 2) if is_stepped else ():
                engine.step(batch_for(number), step_version=number - 1, optimizer_step=number)
            torch.manual_seed(len(name))
            engine.state_save(place, TAG)
        else:
            engine.state_load(place, TAG)
            link_moments(engine)
        row = shown(engine)
        metrics = engine.step(batch_for(3), step_version=2, optimizer_step=3)
        if is_writer:
            engine.state_saved(waits=True)  # the third step must not be in what was written
        row |= {metric: metrics[metric] for metric in METRICS}
        if torch.distributed.get_rank() == 0:
            print(json.dumps({"case": name, **row}), flush=True)


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
