"""Run as a script with a model folder, an empty folder and possibly names of cases: trainer and engine on the device
that torch sees, in one process. It prints one JSON line per case.

A case is a number format and a form of training. Each makes a step, publishes its weights as files,
passes them to a serving engine in place, samples tokens under them, and makes a step on those
tokens. The mismatch is the difference between trainer and engine. Of cases that are named, only the first step is made.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seamlessflow.core.batching.format import Batch, BatchHeader
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.trajectory.tree_layout import NO_PARENT
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group, training_device
from seamlessflow_workers.weights.transports.file.sending import weights_publish
from tests.fixtures.trainer_harness import JOB, batch_of_arrays, make_spec
from tests.gpu.models import VOCABULARY
from tests.gpu.serving import Answer, runner_of, served
from tests.integration.workers.train.trees import trainer_trees_check as trees

NUM_SAMPLES = 32
NUM_TOKENS = 48
NUM_TIMED_STEPS = 3
SHARING = "shared context"
CASES: dict[str, dict[str, Any]] = {
    "float32 rows": {"dtype": "float32", "tree": False, "zero_stage": 1},
    "float32 trees": {"dtype": "float32", "tree": True, "zero_stage": 1},
    "float32 trees ZeRO 3": {"dtype": "float32", "tree": True, "zero_stage": 3},
    "bfloat16 rows": {"dtype": "bfloat16", "tree": False, "zero_stage": 1},
    "bfloat16 trees": {"dtype": "bfloat16", "tree": True, "zero_stage": 1},
}


def batch_of(answers: list[Answer], *, number: int, version: int) -> Batch:
    """Return one sample per answer, with advantages of alternating sign."""
    lengths = np.array([len(answer.prompt) + len(answer.token_ids) for answer in answers])
    mask = np.concatenate([[0] * len(a.prompt) + [1] * len(a.token_ids) for a in answers]).astype(np.uint8)
    advantages = np.repeat(np.resize([1.0, -1.0], len(answers)), lengths).astype(np.float32) * mask
    header = BatchHeader(
        job_id=str(JOB),
        number=number,
        policy_version=version,
        temperature=1.0,
        num_groups=1,
        reward_mean=0.5,
        reward_std=0.5,
    )
    return batch_of_arrays(
        header,
        sample_starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        token_ids=np.concatenate([[*a.prompt, *a.token_ids] for a in answers]).astype(np.int32),
        loss_mask=mask,
        behaviour_logprobs=np.concatenate([[0.0] * len(a.prompt) + a.logprobs for a in answers]).astype(
            np.float32
        ),
        sample_parents=np.full(len(answers), NO_PARENT, dtype=np.int32),
        advantages_positive=np.maximum(advantages, 0),
        advantages_negative=np.minimum(advantages, 0),
        loss_weights=mask.astype(np.float32),
        versions=np.where(mask != 0, version, -1).astype(np.int32),
        rewards=np.resize(np.array([1.0, 0.0], dtype=np.float32), len(answers)),
        sessions=np.arange(len(answers), dtype=np.int32),
        groups=np.zeros(len(answers), dtype=np.int32),
    )


def random_answers(rng: np.random.Generator) -> list[Answer]:
    """Return answers as if sampled from a uniform policy, the same on every device."""
    answers = []
    for _ in range(NUM_SAMPLES):
        tokens = rng.integers(3, VOCABULARY, size=24 + NUM_TOKENS).tolist()
        answers.append(Answer(tokens[:24], tokens[24:], [-float(np.log(VOCABULARY))] * NUM_TOKENS, []))
    return answers


def spec_of(options: dict[str, Any]) -> JobSpec:
    train = {key: value for key, value in options.items() if key != "dtype"}
    return JobSpec.model_validate(
        {
            **make_spec(**train, learning_rate=1e-3, micro_batch_tokens=4096, warmup_updates=0),
            "model": {"source": "artifact://test", "dtype": options["dtype"], "max_model_len": 1024},
        }
    )


def first_step(trainer: TrainEngine, answers: list[Answer]) -> dict[str, float]:
    metrics = trainer.step(batch_of(answers, number=1, version=0), step_version=0, optimizer_step=1)
    return {name: metrics[f"train/{name}"] for name in ("loss", "grad_norm", "entropy")}


async def check(name: str, options: dict[str, Any], model: Path, folder: Path) -> dict[str, Any]:
    spec, device = spec_of(options), training_device()
    trainer = TrainEngine(model, spec)
    answers = random_answers(np.random.default_rng(0))
    first = first_step(trainer, answers)
    async with served(runner_of(model, dtype=getattr(torch, options["dtype"]), device=device)) as engine:
        started_s = time.monotonic()
        published = weights_publish(
            folder / name,
            trainer,
            job_id=JOB,
            version=1,
            parent_version=0,
            dtype=spec.model.dtype,
        )
        await engine.update(published.folder, version="1")
        handed_over_s = time.monotonic() - started_s
        sampled, _ = await engine.generate_all([a.prompt for a in answers], num_tokens=NUM_TOKENS)
    assert all(a.versions == [{"version": "1", "start": 0, "end": NUM_TOKENS}] for a in sampled)
    batch = batch_of(sampled, number=2, version=1)
    second = trainer.step(batch, step_version=1, optimizer_step=2)
    started_s = time.monotonic()
    for number in range(3, 3 + NUM_TIMED_STEPS):
        trainer.step(batch, step_version=1, optimizer_step=number)
    step_s = (time.monotonic() - started_s) / NUM_TIMED_STEPS
    use = trainer.offload()
    trainer.reload()
    again = trainer.step(batch, step_version=1, optimizer_step=3 + NUM_TIMED_STEPS)
    return {
        "case": name,
        "device": str(next(trainer._engine.module.parameters()).device),
        "backend": torch.distributed.get_backend(),
        **first,
        "mismatch max": second["train/mismatch_max"],
        "mismatch mean": second["train/mismatch_mean"],
        "freed MB": use.freed_bytes / 1e6,
        "kept MB": use.kept_bytes / 1e6,
        "peak MB": use.peak_bytes / 1e6,
        "grad_norm after reload": again["train/grad_norm"],
        "hand-over s": handed_over_s,
        "weights MB": published.num_bytes / 1e6,
        "tokens per s": second["train/num_computed_tokens"] / step_s,
        "memory MB": torch.cuda.max_memory_allocated(device) / 1e6 if device.type == "cuda" else None,
    }


def check_sharing(model: Path) -> dict[str, Any]:
    """Make a step on sessions that share much, as trees and as the branches written out."""
    row: dict[str, Any] = {"case": SHARING}
    for form, is_tree in (("trees", True), ("branches", False)):
        spec = trees.make_case({"objective": "by_leaves", "zero_stage": 1}, is_tree=is_tree)
        batch = trees.batch_of(spec, is_tree=is_tree)
        metrics = TrainEngine(model, spec).step(batch, step_version=2, optimizer_step=1)
        names = ("loss", "grad_norm", "num_tokens")
        row[form] = {name: metrics[f"train/{name}"] for name in names}
    return row


def main(model: Path, folder: Path, *names: str) -> None:
    for name in names:
        trainer = TrainEngine(model, spec_of(CASES[name]))
        row = first_step(trainer, random_answers(np.random.default_rng(0)))
        print(json.dumps({"case": name, **row}), flush=True)
    if names:
        return
    print(json.dumps(check_sharing(model)), flush=True)
    for name, options in CASES.items():
        print(json.dumps(asyncio.run(check(name, options, model, folder))), flush=True)


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
