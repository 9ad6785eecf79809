"""Run by all ranks of a launcher, with the number of those that share sequences: float64 loss and gradients.

Further arguments name the cases; without any, all are computed. Each rank also computes the whole batch alone, as the
oracle. Prints one JSON line per case, with the deviations of the sum over all ranks.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.batching.assembler import BatchPlan, assemble_batch
from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import TrainObjective
from seamlessflow_workers.train.sequence_parallel.collectives import ALONE, SequenceGroup, sequence_group
from seamlessflow_workers.train.sequence_parallel.support import SequenceRefused, sequence_attention_enable
from seamlessflow_workers.train.step.forward_pass import ForwardPass
from seamlessflow_workers.train.step.guide_masks import FREE, BatchMasks
from seamlessflow_workers.train.step.loss import TokenTerms, policy_loss
from seamlessflow_workers.train.step.micro_batches import MicroBatch, plan_batch
from seamlessflow_workers.train.step.policy import Policy
from seamlessflow_workers.train.step.process_group import process_group
from seamlessflow_workers.train.trees.support import tree_attention_enable
from tests.fixtures.exact_models import VOCABULARY, exact_model
from tests.fixtures.random_sessions import random_session
from tests.fixtures.trainer_harness import JOB

STEP_VERSION = 2
CPU = torch.device("cpu")
PLAIN: dict[str, Any] = {"kl_coef": 0.0, "max_staleness": 9}


@dataclass(frozen=True)
class Case:
    algorithm: dict[str, Any] = field(default_factory=dict)
    is_tree: bool = True
    num_heads: int = 4
    num_key_heads: int = 2
    budget: int = 61  # tokens of one pass; neither it nor most rows can be shared equally
    has_masks: bool = False
    architecture: str = "qwen3"
    has_checkpoints: bool = False
    objective: TrainObjective = TrainObjective.ONCE


CASES = {
    "trees": Case(),
    "one large tree": Case(budget=4096, objective=TrainObjective.BY_LEAVES),
    "branches": Case(is_tree=False),
    "one key head": Case(num_key_heads=1),
    "branches, one key head": Case(is_tree=False, num_key_heads=1, architecture="llama"),
    "key heads that ranks do not divide": Case(num_heads=12, num_key_heads=3),
    "KL and entropy": Case({"kl_coef": 0.2, "entropy_coef": 0.05}),
    "ratios of sequences": Case({"name": "gspo", "clip_low": 0.1, "clip_high": 0.1}),
    "importance of sequences": Case(
        {
            "off_policy": {
                "proximal": "current",
                "importance": "truncate",
                "importance_level": "sequence_mean",
                "importance_max": 1.05,
            }
        }
    ),
    "branches, ratios of sequences": Case({"name": "gspo", "clip_low": 0.1, "clip_high": 0.1}, is_tree=False),
    "guides": Case({"entropy_coef": 0.05}, has_masks=True),
    "checkpointed activations": Case(has_checkpoints=True),
}


def batch_of(case: Case, algorithm: AlgorithmSection) -> Batch:
    rng = np.random.default_rng(5)
    groups = [
        [
            FinishedSession(float(reward), random_session(rng, num_nodes=22, vocabulary=VOCABULARY))
            for reward in (0, 1, 1, 0)
        ]
        for _ in range(2)
    ]
    plan = BatchPlan(
        job_id=str(JOB),
        number=1,
        policy_version=STEP_VERSION,
        temperature=0.8,
        algorithm=algorithm,
        objective=case.objective,
        is_tree=case.is_tree,
    )
    return assemble_batch(groups, plan)


def random_masks(batch: Batch) -> BatchMasks:
    """Masks for half of the trained tokens, each of which allows the token itself."""
    rng = np.random.default_rng(3)
    num_tokens = len(batch.token_ids)
    rows = np.full(num_tokens, FREE)
    guided = np.flatnonzero((batch.loss_mask != 0) & (rng.random(num_tokens) < 0.5))
    allowed = rng.random((len(guided), VOCABULARY)) < 0.5
    allowed[np.arange(len(guided)), batch.token_ids[guided]] = True
    rows[guided] = np.arange(len(guided))
    return BatchMasks(
        rows, np.packbits(allowed, axis=1, bitorder="little"), np.zeros(num_tokens, dtype=np.bool_)
    )


def make_policy(case: Case, group: SequenceGroup, *, seed: int) -> Policy:
    model = exact_model(
        case.architecture,
        seed=seed,
        num_hidden_layers=2,
        num_attention_heads=case.num_heads,
        num_key_value_heads=case.num_key_heads,
    )
    if case.is_tree:
        tree_attention_enable(model)
    if group.size > 1:
        sequence_attention_enable(model, group, is_tree=case.is_tree, num_path_tokens_max=64)
    policy = Policy(model, has_gradient_checkpoints=case.has_checkpoints, has_entropy_gradient=True)
    return policy.train()


def terms_of(
    micro_batch: MicroBatch, noise: Tensor, logprobs: Tensor, reference: Tensor | None
) -> TokenTerms:
    """Take what the sampler thought to be near the policy, so that some ratios are clipped and some are not."""
    wide = [
        torch.from_numpy(array).double()
        for array in (
            micro_batch.advantages_positive,
            micro_batch.advantages_negative,
            micro_batch.loss_weights,
        )
    ]
    return TokenTerms(
        behaviour_logprobs=logprobs.detach() + noise[torch.from_numpy(micro_batch.token_indices)],
        advantages_positive=wide[0],
        advantages_negative=wide[1],
        loss_weights=wide[2],
        sequences=torch.from_numpy(micro_batch.sequences),
        num_sequences=micro_batch.num_sequences,
        is_current=torch.from_numpy(micro_batch.versions) == STEP_VERSION,
        reference_logprobs=reference,
    )


@dataclass(frozen=True)
class Step:
    """What a rank sees of a batch."""

    loss: float
    gradients: list[Tensor]
    num_micro_batches: int
    num_predictions: int  # that its output head made


def step(case: Case, group: SequenceGroup, *, is_whole: bool) -> Step:
    algorithm = AlgorithmSection.model_validate({**PLAIN, **case.algorithm})
    batch = batch_of(case, algorithm)
    plan = plan_batch(
        batch,
        step_version=STEP_VERSION,
        algorithm=algorithm,
        aggregation_constant=1.0,
        micro_batch_tokens=case.budget,
        is_tree=case.is_tree,
        masks=random_masks(batch) if case.has_masks else None,
        num_sharing=group.size,
    )
    policy, initial = make_policy(case, group, seed=1), make_policy(case, group, seed=2)
    noise = torch.from_numpy(np.random.default_rng(1).normal(0, 0.15, len(batch.token_ids)))
    forward = ForwardPass(CPU, group)
    made: list[int] = []
    head = policy.model.get_output_embeddings()  # type: ignore[operator]
    head.register_forward_hook(lambda _module, _inputs, output: made.append(len(output)))
    shared = (
        [(micro, True) for micro in plan.micro_batches] if is_whole else forward.local(plan.micro_batches)
    )
    total = 0.0
    for micro_batch, counts in shared:
        reference = None
        if algorithm.needs_reference:
            with torch.no_grad():
                reference, _ = forward(initial, micro_batch, batch.header.temperature)
        logprobs, entropies = forward(policy, micro_batch, batch.header.temperature)
        output = policy_loss(
            logprobs, terms_of(micro_batch, noise, logprobs, reference), algorithm, entropies=entropies
        )
        output.loss.backward()
        total += float(output.loss.detach()) * counts
    gradients = [parameter.grad for parameter in policy.parameters()]
    assert all(gradient is not None for gradient in gradients)
    return Step(total, gradients, len(shared), sum(made))  # type: ignore[arg-type]


def least_and_most(number: int) -> tuple[int, int]:
    """Return the smallest and the largest number of all ranks."""
    both = torch.tensor([-number, number])
    torch.distributed.all_reduce(both, op=torch.distributed.ReduceOp.MAX)
    return -int(both[0]), int(both[1])


def sums(tensors: Sequence[Tensor]) -> list[Tensor]:
    for tensor in tensors:
        torch.distributed.all_reduce(tensor)
    return list(tensors)


def refusals(group: SequenceGroup) -> list[str]:
    """Return what each rank says of a model whose layers mix each token with its neighbour."""
    model = exact_model("llama")
    mlp = model.get_submodule("model.layers.1.mlp")
    mlp.register_forward_pre_hook(lambda _module, inputs: (inputs[0] + inputs[0].roll(1, dims=1),))
    reasons = [""] * torch.distributed.get_world_size()
    try:
        sequence_attention_enable(model, group, is_tree=False, num_path_tokens_max=64)
    except SequenceRefused as error:
        torch.distributed.all_gather_object(reasons, str(error))
    return reasons


def main(num_sharing: int, names: Sequence[str]) -> None:
    group = sequence_group(num_sharing)
    for name in names or CASES:
        case = CASES[name]
        expected, own = step(case, ALONE, is_whole=True), step(case, group, is_whole=False)
        (whole_loss,) = sums([torch.tensor(own.loss, dtype=torch.float64)])
        errors = [
            float((found - wanted).norm() / wanted.norm())
            for found, wanted in zip(sums(own.gradients), expected.gradients, strict=True)
        ]
        row = {
            "case": name,
            "loss_error": abs(float(whole_loss) - expected.loss),
            "gradient_error": max(errors),
            "gradient_norm": float(torch.cat([part.flatten() for part in expected.gradients]).norm()),
            "num_micro_batches": least_and_most(own.num_micro_batches),
            "num_predictions": least_and_most(own.num_predictions),
        }
        if torch.distributed.get_rank() == 0:
            print(json.dumps(row), flush=True)
    refused = [] if names else refusals(group)
    if refused and torch.distributed.get_rank() == 0:
        print(json.dumps({"case": "a token shift", "refused": refused}), flush=True)


if __name__ == "__main__":
    with process_group():
        main(int(sys.argv[1]), sys.argv[2:])
