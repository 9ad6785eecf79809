"""Run as a script: PPO on a task that a tiny model can learn. Prints one JSON line with a row per update.

An answer has four tokens, and the reward is the share of them from the first quarter of the vocabulary. Sampler,
assembler and engine are the platform's own functions; only the loop belongs to this script.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from seamlessflow.core.batching.assembler import BatchPlan, assemble_batch
from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.trainer_harness import JOB, VOCABULARY, make_spec

NUM_UPDATES, NUM_GROUPS, GROUP_SIZE, NUM_ANSWER_TOKENS = 22, 8, 4, 4
NUM_PROMPTS = 4


def spec_of() -> JobSpec:
    train = {
        "learning_rate": 3e-3,
        "warmup_updates": 0,
        "minibatches": 2,
        "epochs": 2,
        "micro_batch_tokens": 1024,
    }
    return JobSpec.model_validate(
        {
            **make_spec(num_updates=NUM_UPDATES, **train),
            "rollout": {"groups_per_batch": NUM_GROUPS, "group_size": GROUP_SIZE},
            "algorithm": {"name": "ppo", "critic": {"learning_rate": 3e-3, "warmup_updates": 3}},
        }
    )


@torch.no_grad()
def sample(model: torch.nn.Module, prompts: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return answers and their logprobs, [B, NUM_ANSWER_TOKENS] each."""
    ids, logprobs = prompts, []
    for _ in range(NUM_ANSWER_TOKENS):
        log_probabilities = torch.log_softmax(model(input_ids=ids).logits[:, -1], -1)
        chosen = torch.multinomial(log_probabilities.exp(), 1, generator=generator)
        logprobs.append(log_probabilities.gather(1, chosen))
        ids = torch.cat([ids, chosen], 1)
    return ids[:, prompts.shape[1] :], torch.cat(logprobs, 1)


def finished(prompt: list[int], answer: list[int], logprobs: list[float], version: int) -> FinishedSession:
    root = Node(
        index=0,
        parent=None,
        kind=NodeKind.ROOT,
        token_ids=np.array(prompt, "<i4").tobytes(),
        digests=(),
        num_path_tokens=len(prompt),
    )
    said = Node(
        index=1,
        parent=0,
        kind=NodeKind.SAMPLED,
        token_ids=np.array(answer, "<i4").tobytes(),
        digests=(),
        num_path_tokens=len(prompt) + len(answer),
        logprobs=np.array(logprobs, "<f4").tobytes(),
        spans=(0, version),
    )
    return FinishedSession(
        reward=float(np.mean(np.array(answer) < VOCABULARY // 4)),
        nodes=[root, said],
        num_turns=1,
        num_sampled_tokens=len(answer),
    )


def main(model_path: Path) -> None:
    spec = spec_of()
    engine = TrainEngine(model_path, spec)
    sampler = AutoModelForCausalLM.from_pretrained(model_path).float().eval()
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    curve = []
    for update in range(NUM_UPDATES):
        sampler.load_state_dict(engine._engine.module.model.state_dict())
        kinds = np.repeat(rng.integers(0, NUM_PROMPTS, size=NUM_GROUPS), GROUP_SIZE)
        prompts = torch.tensor([[int(kind), 7] for kind in kinds])
        answers, logprobs = sample(sampler, prompts, generator)
        sessions = [
            finished(*row, update)
            for row in zip(prompts.tolist(), answers.tolist(), logprobs.tolist(), strict=True)
        ]
        groups = [sessions[first : first + GROUP_SIZE] for first in range(0, len(sessions), GROUP_SIZE)]
        plan = BatchPlan(
            job_id=str(JOB),
            number=update + 1,
            policy_version=update,
            temperature=1.0,
            algorithm=spec.algorithm,
            is_tree=True,
        )
        first_step = update * spec.train.num_steps_per_update + 1
        metrics = engine.step(assemble_batch(groups, plan), step_version=update, optimizer_step=first_step)
        curve.append(metrics)
    print(json.dumps({"case": "ppo", "curve": curve}))


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]))
