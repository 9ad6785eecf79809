"""Run as a script with the folder of `tests.fakes.mixture_models` and an empty one: sample, train, publish, update.

A random policy learns to write small tokens. The embedded engine samples and is updated in place from published files
after every step. Prints one JSON line per family with rewards at both ends and the largest difference between the
engine's logprobs and the trainer's.
"""

import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import torch
from numpy.typing import NDArray

from seamlessflow.core.batching.format import Batch, BatchHeader
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.trajectory.tree_layout import NO_PARENT
from seamlessflow_workers.rollout.engine.model.loading import LoadOptions, load_runner
from seamlessflow_workers.rollout.engine.model.torch_runner import TorchRunner
from seamlessflow_workers.rollout.engine.scheduler import Scheduler
from seamlessflow_workers.rollout.serving.request import GenerateRequest, SamplingParams
from seamlessflow_workers.rollout.serving.sequence import ServedSequence
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group
from seamlessflow_workers.weights.transports.file.sending import weights_publish
from tests.fakes.mixture_models import FAMILIES
from tests.fixtures.trainer_harness import JOB, VOCABULARY, batch_of_arrays, make_spec

NUM_UPDATES, NUM_COMPARED = 16, 3
NUM_GROUPS, GROUP_SIZE = 4, 8
NUM_PROMPT_TOKENS, NUM_ANSWERED = 4, 12
SMALL = VOCABULARY // 4  # tokens below it are rewarded
LENGTH = NUM_PROMPT_TOKENS + NUM_ANSWERED


def sample(runner: TorchRunner, version: int) -> list[ServedSequence]:
    """Answers to random prompts, GROUP_SIZE to each."""
    chance = np.random.default_rng(version)
    prompts = chance.integers(0, VOCABULARY, size=(NUM_GROUPS, NUM_PROMPT_TOKENS)).tolist()
    scheduler = Scheduler(runner, max_batched_tokens=256)
    params = SamplingParams(max_tokens=NUM_ANSWERED, ignore_eos=True, logprobs=0)
    sequences = [
        ServedSequence(
            request_id=str(number),
            body=GenerateRequest(token_ids=prompts[number // GROUP_SIZE], sampling_params=params),
            eos_token_ids=frozenset(),
            max_model_len=runner.max_model_len,
            seed=1000 * version + number,
        )
        for number in range(NUM_GROUPS * GROUP_SIZE)
    ]
    for sequence in sequences:
        scheduler.add(sequence)
    scheduler.admit()
    while batch := scheduler.plan(weight_version=str(version)):
        scheduler.commit(batch, runner.step(batch))
        scheduler.admit()
    return sequences


def rewards_of(sequences: list[ServedSequence]) -> NDArray[np.float64]:
    answers = np.stack([sequence.tokens[NUM_PROMPT_TOKENS:LENGTH] for sequence in sequences])
    shares: NDArray[np.float64] = (answers < SMALL).mean(1)
    return shares


def batch_of(sequences: list[ServedSequence], version: int) -> Batch:
    rewards = rewards_of(sequences)
    by_group = rewards.reshape(NUM_GROUPS, GROUP_SIZE)
    advantages = np.repeat((by_group - by_group.mean(1, keepdims=True)).reshape(-1), LENGTH)
    num_samples = len(sequences)
    mask = np.tile(np.arange(LENGTH) >= NUM_PROMPT_TOKENS, num_samples).astype(np.uint8)
    behaviour = np.zeros((num_samples, LENGTH), dtype=np.float32)
    for row, sequence in zip(behaviour, sequences, strict=True):
        row[NUM_PROMPT_TOKENS:] = sequence.logprobs[:NUM_ANSWERED]
    header = BatchHeader(
        job_id=str(JOB), number=version + 1, policy_version=version, temperature=1.0,
        num_groups=NUM_GROUPS, reward_mean=float(rewards.mean()), reward_std=float(rewards.std()),
    )  # fmt: skip
    return batch_of_arrays(
        header,
        sample_starts=(np.arange(num_samples + 1) * LENGTH).astype(np.int32),
        token_ids=np.concatenate([sequence.tokens[:LENGTH] for sequence in sequences]).astype(np.int32),
        loss_mask=mask,
        behaviour_logprobs=behaviour.reshape(-1),
        sample_parents=np.full(num_samples, NO_PARENT, dtype=np.int32),
        advantages_positive=np.maximum(advantages, 0).astype(np.float32) * mask,
        advantages_negative=np.minimum(advantages, 0).astype(np.float32) * mask,
        loss_weights=mask.astype(np.float32),
        versions=np.where(mask != 0, version, -1).astype(np.int32),
        rewards=rewards.astype(np.float32),
        sessions=np.arange(num_samples, dtype=np.int32),
        groups=(np.arange(num_samples) // GROUP_SIZE).astype(np.int32),
    )


def check(family: str, models: Path, versions: Path) -> dict[str, Any]:
    train = {"learning_rate": 1e-2, "warmup_updates": 0, "micro_batch_tokens": 1024}
    spec = JobSpec.model_validate({**make_spec(**train), "algorithm": {"name": "grpo", "kl_coef": 0.0}})
    engine = TrainEngine(models / family, spec)
    options = LoadOptions(
        model=models / family, weights=None, dtype=torch.float32, device=torch.device("cpu"),
        max_model_len=LENGTH, num_slots=NUM_GROUPS * GROUP_SIZE,
    )  # fmt: skip
    runner = load_runner(options)
    rewards, mismatches = [], []
    for version in range(NUM_UPDATES):
        sequences = sample(runner, version)
        rewards.append(float(rewards_of(sequences).mean()))
        metrics = engine.step(batch_of(sequences, version), step_version=version, optimizer_step=version + 1)
        mismatches.append(metrics["train/mismatch_max"])
        published = weights_publish(
            versions, engine, job_id=UUID(int=1), version=version + 1, parent_version=version, dtype="float32"
        )
        runner.stage_weights(published.folder).apply()
    return {
        "case": family,
        "first": sum(rewards[:NUM_COMPARED]) / NUM_COMPARED,
        "last": sum(rewards[-NUM_COMPARED:]) / NUM_COMPARED,
        "mismatch_max": max(mismatches),
        "num_mismatches": len(mismatches),
    }


def main(models: Path, folder: Path) -> None:
    for family in FAMILIES:
        print(json.dumps(check(family, models, folder / family)), flush=True)


if __name__ == "__main__":
    with process_group():
        main(*map(Path, sys.argv[1:]))
