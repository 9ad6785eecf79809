"""Run as a script: steps with options that save memory, against the plain step and against float64.

Rank 0 prints one JSON line per case: how far gradients (of the largest one) and losses are from those of ZeRO 0 without
any option, and from the float64 oracle. Then, in bfloat16, how far the summed gradient is from the sum in float64 of
the gradients of the micro-batches.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from seamlessflow.core.job_spec import Dtype, JobSpec
from seamlessflow_workers.train.step import sampled, sampling_head
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.optimizer_step import LocalMicroBatch
from seamlessflow_workers.train.step.policy import policy_load
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.trainer_harness import make_batch, make_spec
from tests.integration.workers.train.step.trainer_deepspeed_check import (
    BETA1,
    TEMPERATURE,
    exact_logprobs,
    first_moment,
    oracle_of,
)

TRAIN: dict[str, Any] = {"max_grad_norm": 1000.0, "adam_betas": (BETA1, 0.95), "warmup_updates": 0}
LORA = {"lora": {"rank": 3}}
ON_HOST = {"gradient_checkpointing": True, "offload": {"activations": True}}
ALL = {"gradient_checkpointing": True, "offload": {"activations": True, "optimizer": True}}
IN_CHUNKS = "in chunks"  # at the end of a name: the head computes a few logits at a time
CASES: dict[str, dict[str, Any]] = {
    "partitioned": {"zero_stage": 3},
    "partitioned rows": {"zero_stage": 3, "tree": False},
    "partitioned adapter": {"zero_stage": 3, **LORA},
    f"head {IN_CHUNKS}": {"zero_stage": 0},
    f"partitioned, head {IN_CHUNKS}": {"zero_stage": 3},
    "activations": {"zero_stage": 1, **ON_HOST},
    "partitioned, activations": {"zero_stage": 3, **ON_HOST},
    **{
        f"optimizer at stage {stage}": {"zero_stage": stage, "offload": {"optimizer": True}}
        for stage in (1, 2, 3)
    },
    f"all of it, head {IN_CHUNKS}": {"zero_stage": 3, **ALL},
    f"all of it at stage 2, head {IN_CHUNKS}": {"zero_stage": 2, **ALL},
    f"all of it for an adapter, head {IN_CHUNKS}": {"zero_stage": 3, **ALL, **LORA},
}
SUMS = {
    f"{dtype} at stage {stage}{' on the host' if on_host else ''}": {
        "zero_stage": stage,
        "gradient_dtype": dtype,
        "offload": {"optimizer": on_host},
    }
    for stage in (1, 2, 3)
    for dtype, on_host in (("float32", False), ("float32", True), ("bfloat16", False))
}
KL_AND_ENTROPY = {"name": "dapo", "kl_coef": 0.2, "entropy_coef": 0.1}


def spec_of(train: Mapping[str, Any], *, dtype: str = "float32") -> JobSpec:
    model = {"source": "artifact://test", "dtype": dtype}
    body = {**make_spec(**{**TRAIN, **train}), "model": model, "algorithm": KL_AND_ENTROPY}
    return JobSpec.model_validate(body)


@contextmanager
def few_logits_at_a_time() -> Iterator[None]:
    kept, chunk = sampling_head.KEPT_LOGITS, sampled.CHUNK_ELEMENTS
    sampling_head.KEPT_LOGITS, sampled.CHUNK_ELEMENTS = 1, 300
    try:
        yield
    finally:
        sampling_head.KEPT_LOGITS, sampled.CHUNK_ELEMENTS = kept, chunk


def trained(engine: TrainEngine) -> dict[str, Tensor]:
    named = engine._engine.module.named_parameters()
    return {name: parameter for name, parameter in named if parameter.requires_grad}


def two_steps(model: Path, spec: JobSpec) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """The gradients of the first step, as the optimizer saw them, and the metrics of both."""
    engine = TrainEngine(model, spec)
    metrics = [engine.step(make_batch(1, temperature=TEMPERATURE), step_version=0, optimizer_step=1)]
    gradients = {name: first_moment(engine, value) / (1 - BETA1) for name, value in trained(engine).items()}
    metrics.append(engine.step(make_batch(2, temperature=TEMPERATURE), step_version=1, optimizer_step=2))
    return gradients, metrics


def worst(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    assert found.keys() == expected.keys()
    largest = max(float(value.abs().max()) for value in expected.values())
    differences = (found[name].double() - expected[name].double() for name in expected)
    return max(float(difference.abs().max()) for difference in differences) / largest


def exact_step(model: Path, spec: JobSpec) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients in float64, without the entropy, which the oracle leaves out."""
    exact = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    batch = make_batch(1, temperature=TEMPERATURE)
    logprobs = exact_logprobs(exact, batch)
    oracle = oracle_of(batch, logprobs, spec)
    logprobs.backward(torch.from_numpy(np.concatenate(oracle.gradients)))
    return oracle.loss, {
        f"model.{name}": p.grad for name, p in exact.named_parameters() if p.grad is not None
    }


@cache
def plain_steps(model: Path, *, is_adapter: bool) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    return two_steps(model, spec_of({"zero_stage": 0, **(LORA if is_adapter else {})}))


def check(model: Path, name: str) -> dict[str, Any]:
    train = CASES[name]
    expected, plain = plain_steps(model, is_adapter="lora" in train)
    spec = spec_of(train)
    if name.endswith(IN_CHUNKS):
        with few_logits_at_a_time():
            gradients, metrics = two_steps(model, spec)
    else:
        gradients, metrics = two_steps(model, spec)
    compared = ("train/loss", "train/kl_reference", "train/entropy", "train/grad_norm")
    return {
        "case": name,
        "gradients": worst(gradients, expected),
        **{
            key: max(abs(own[key] - other[key]) for own, other in zip(metrics, plain, strict=True))
            for key in compared
        },
        "largest": max(abs(other[key]) for other in plain for key in compared),
    }


def check_exact(model: Path) -> dict[str, Any]:
    """Everything at once, without entropy."""
    spec = spec_of({"zero_stage": 3, **ALL})
    algorithm = spec.algorithm.model_copy(update={"entropy_coef": 0.0})
    spec = spec.model_copy(update={"algorithm": algorithm})
    loss, expected = exact_step(model, spec)
    with few_logits_at_a_time():
        gradients, metrics = two_steps(model, spec)
    return {
        "case": "float64",
        "gradients": worst(gradients, expected),
        "train/loss": abs(metrics[0]["train/loss"] - loss),
    }


def exact_sums(model: Path) -> dict[str, Tensor]:
    """The gradients of all micro-batches of one step, each computed in bfloat16, added up in float64."""
    engine = TrainEngine(model, spec_of({"zero_stage": 0, "micro_batch_tokens": 16}, dtype="bfloat16"))
    policy = policy_load(model, Dtype.BFLOAT16, is_tree=True, has_entropy_gradient=True)
    plan = engine._plan(make_batch(1, temperature=TEMPERATURE), 0, None)
    engine._engine = policy
    sums: dict[str, Tensor] = {}
    for micro_batch in plan.micro_batches:
        policy.zero_grad()
        engine._loss(
            LocalMicroBatch(micro_batch, True), temperature=TEMPERATURE, version=0, records=()
        ).backward()
        for name, parameter in policy.named_parameters():
            assert parameter.grad is not None
            sums[name] = sums.get(name, 0) + parameter.grad.double()
    assert len(plan.micro_batches) > 4, "there is something to add up"
    return sums


def check_sums(model: Path) -> Iterator[dict[str, Any]]:
    expected = exact_sums(model)
    for name, train in SUMS.items():
        gradients, _ = two_steps(model, spec_of({"micro_batch_tokens": 16, **train}, dtype="bfloat16"))
        yield {"case": name, "gradients": worst(gradients, expected)}


def rows(model: Path) -> Iterator[dict[str, Any]]:
    for name in CASES:
        yield check(model, name)
    yield check_exact(model)
    yield from check_sums(model)


def main(model: Path) -> None:
    for row in rows(model):
        if torch.distributed.get_rank() == 0:
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]))
