"""Run by two ranks of a launcher with a number of tokens and one of timed passes: gradients of one tree, two ways.

Alone, each rank has all tokens; both compute at the same time, so that both cores are as busy as when they share the
sequence. Prints one JSON line per rank: by how many bytes in use a pass exceeds at its peak what was in use before it,
and the seconds of the timed passes, which take turns.
"""

import ctypes
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from seamlessflow.core.trajectory.tree_layout import NO_PARENT, TreeLayout
from seamlessflow_workers.train.sequence_parallel.collectives import sequence_group
from seamlessflow_workers.train.sequence_parallel.slices import rows_pad
from seamlessflow_workers.train.sequence_parallel.support import sequence_attention_enable
from seamlessflow_workers.train.step.forward_pass import ForwardPass
from seamlessflow_workers.train.step.micro_batches import MicroBatch
from seamlessflow_workers.train.step.policy import Policy
from seamlessflow_workers.train.step.process_group import process_group
from seamlessflow_workers.train.trees.support import tree_attention_enable
from tests.fixtures.anonymous_memory import PeakWatch, anonymous_bytes, freed_memory_keep_little

MODEL: dict[str, Any] = {
    "vocab_size": 1024, "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 32_768,
    "tie_word_embeddings": True,
}  # fmt: skip
NUM_BRANCHES = 8
MAX_GRADIENT_ERROR = 1e-3  # relative, float32


def tree_of(num_tokens: int) -> TreeLayout:
    """Half of the tokens are a prompt, and as many branches continue from its end."""
    num_shared, length = num_tokens // 2, num_tokens // 2 // NUM_BRANCHES
    starts = [0, *(num_shared + branch * length for branch in range(1, NUM_BRANCHES + 1))]
    return TreeLayout(np.array(starts), np.array([NO_PARENT] + [num_shared - 1] * (NUM_BRANCHES - 1)))


def micro_batch_of(tree: TreeLayout, num_sharing: int) -> MicroBatch:
    """Every token behind the prompt is trained."""
    chance = np.random.default_rng(0)
    token_indices = np.arange(tree.num_tokens // 2, tree.num_tokens)
    nothing = np.zeros(len(token_indices), dtype=np.float32)
    return MicroBatch(
        token_ids=rows_pad(chance.integers(0, MODEL["vocab_size"], (1, tree.num_tokens)), num_sharing),
        rows=np.zeros(len(token_indices), dtype=np.int64),
        columns=tree.predecessors[token_indices],
        targets=chance.integers(0, MODEL["vocab_size"], len(token_indices)),
        behaviour_logprobs=nothing,
        advantages_positive=nothing,
        advantages_negative=nothing,
        loss_weights=nothing,
        versions=np.zeros(len(token_indices), dtype=np.int32),
        token_indices=token_indices,
        sequences=tree.samples[token_indices],
        num_sequences=tree.num_samples,
        tree=tree,
    )


@dataclass(frozen=True, slots=True)
class Side:
    policy: Policy
    forward: ForwardPass
    micro_batch: MicroBatch

    def run(self) -> float:
        """Return the seconds that a pass takes. All ranks begin and end together."""
        torch.distributed.barrier()
        started_s = time.monotonic()
        logprobs, _ = self.forward(self.policy, self.micro_batch, 1.0)
        logprobs.sum().backward()
        torch.distributed.barrier()
        return time.monotonic() - started_s


def side_of(num_sharing: int, num_tokens: int) -> Side:
    group = sequence_group(num_sharing)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**MODEL))
    tree_attention_enable(model)
    if group.size > 1:
        sequence_attention_enable(model, group, is_tree=True, num_path_tokens_max=num_tokens)
    return Side(
        Policy(model),
        ForwardPass(torch.device("cpu"), group),
        micro_batch_of(tree_of(num_tokens), num_sharing),
    )


def main(num_tokens: int, num_repeats: int) -> None:
    freed_memory_keep_little()  # before the heap grows: what fits there is taken from it
    sides = {
        "alone": side_of(1, num_tokens),
        "shared": side_of(torch.distributed.get_world_size(), num_tokens),
    }
    for side in sides.values():
        side.run()  # it makes the gradients, which are not counted
    check_same_work(**sides)
    row: dict[str, Any] = {"case": str(torch.distributed.get_rank())}
    for name, side in sides.items():
        row[name] = {"peak": peak_of(side.run), "seconds": []}
    for _ in range(num_repeats):
        for name, side in sides.items():
            row[name]["seconds"].append(side.run())
    sys.stdout.write(json.dumps(row) + "\n")


def check_same_work(alone: Side, shared: Side) -> None:
    for own, whole in zip(shared.policy.parameters(), alone.policy.parameters(), strict=True):
        assert own.grad is not None
        assert whole.grad is not None
        total = own.grad.clone()
        torch.distributed.all_reduce(total)
        assert float((total - whole.grad).norm() / whole.grad.norm()) < MAX_GRADIENT_ERROR


def peak_of(run: Callable[[], float]) -> int:
    """Return by how many bytes a pass exceeds at its peak what was in use before it."""
    ctypes.CDLL(None).malloc_trim(0)  # else what the last pass freed would count as in use
    with PeakWatch() as watch:
        before = anonymous_bytes()
        run()
        peak: int = watch.peak_bytes()
    return peak - before


if __name__ == "__main__":
    with process_group():
        main(*(int(argument) for argument in sys.argv[1:3]))
