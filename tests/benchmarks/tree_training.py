"""Compares one step (forward and backward) on trees of tokens with the same branches trained one by
one.

Both sides have the same weights, tokens, loss and micro-batch budget, with one thread each. The
baseline writes all branches out, as many whole rows of equal length as fit the budget, without
padding, on torch's own causal attention; the tree's side computes each token once. With the
objective by_leaves, both sides have the same loss and gradients (checked before measuring), and the
baseline computes the head for each branch. With `once` it computes the head for each answer once,
so that is reported as well. Speed-up = baseline's time / tree's time; the bound is linear tokens /
tree tokens. Times are processor times, which other work disturbs less than wall time.

The shapes have shared stretches s = 1 - tree tokens / linear tokens: two levels of forks, with
answers after every fork.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from seamlessflow.core.algorithms.tree_weights import token_weights
from seamlessflow.core.job_spec import TrainObjective
from seamlessflow.core.trajectory.tree_layout import NO_PARENT, TreeLayout
from seamlessflow_workers.train.step.policy import Policy
from seamlessflow_workers.train.trees.blocks import TreeBlocks
from seamlessflow_workers.train.trees.support import tree_attention_enable
from tests.benchmarks.measuring import Side, interleaved
from tests.benchmarks.report import Goal, Measured, Quantity, Row

BASELINE = "branch by branch"
NUM_THREADS = 1
BUDGET_TOKENS = 2048
NUM_REPEATS = 3
SHARE_OF_BOUND = 0.85
"""What issue D asks of the speed-up, as a share of linear tokens / tree tokens."""
MAX_GRADIENT_ERROR = 1e-3  # relative, float32
MODEL: dict[str, Any] = {
    "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}  # fmt: skip

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Shape:
    """Trees with a prompt, `num_middle` answers after it and `num_ends` more after each of
    those."""

    percent_shared: int
    num_trees: int
    num_prompt_tokens: int
    num_middle: int
    num_middle_tokens: int
    num_ends: int
    num_end_tokens: int

    def layout(self) -> TreeLayout:
        """Both later levels are sampled; the prompt is not."""
        lengths: list[int] = []
        parents: list[int] = []
        for _ in range(self.num_trees):
            base = sum(lengths)
            fork = base + self.num_prompt_tokens - 1
            for middle in range(self.num_middle):
                answer = self.num_middle_tokens + (0 if middle else self.num_prompt_tokens)
                answered = sum(lengths) + answer - 1
                for end in range(self.num_ends):
                    lengths.append(self.num_end_tokens + (0 if end else answer))
                    is_first = not end and not middle
                    parents.append(NO_PARENT if is_first else answered if end else fork)
        return TreeLayout(np.concatenate([[0], np.cumsum(lengths)]), np.array(parents))

    @property
    def num_path_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_middle_tokens + self.num_end_tokens


SHAPES = (
    Shape(90, 1, 512, 4, 32, 4, 16),
    Shape(60, 2, 384, 2, 96, 2, 80),
    Shape(30, 2, 336, 2, 112, 1, 112),
)
GOALS = (90, 60)
WITH_ONCE = 60


@dataclass(frozen=True, slots=True)
class Pass:
    """One micro-batch: the arguments of `Policy.forward`, and the advantage of each trained
    token."""

    token_ids: Tensor
    rows: Tensor
    columns: Tensor
    targets: Tensor
    advantages: Tensor
    tree: TreeBlocks | None

    def run(self, policy: Policy) -> None:
        logprobs, _ = policy(self.token_ids, self.rows, self.columns, self.targets, 1.0, self.tree)
        (-(logprobs * self.advantages).sum()).backward()


async def measure() -> list[Row]:
    torch.set_num_threads(NUM_THREADS)
    linear, on_trees = random_model(), random_model()
    tree_attention_enable(on_trees)
    rows: list[Row] = []
    for shape in SHAPES:
        rows += await _measure(shape, Policy(linear), Policy(on_trees))
    return rows


async def _measure(shape: Shape, linear: Policy, on_trees: Policy) -> list[Row]:
    layout = shape.layout()
    chance = np.random.default_rng(0)
    ids = torch.from_numpy(chance.integers(0, MODEL["vocab_size"], layout.num_tokens))
    is_trained = layout.positions >= shape.num_prompt_tokens
    advantages = chance.normal(size=layout.num_samples)
    bound = layout.num_linear_tokens / layout.num_tokens
    assert round(100 * (1 - 1 / bound)) == shape.percent_shared
    sides: dict[str, Side] = {}
    for objective in _objectives(shape):
        tree = [tree_pass(layout, ids, is_trained, advantages, objective)]
        rows = list(linear_passes(shape, layout, ids, is_trained, advantages, objective))
        if objective is TrainObjective.BY_LEAVES:
            check_same_gradients(linear, rows, on_trees, tree)
        sides[f"{objective}, tree"] = partial(_step, on_trees, tree)
        sides[f"{objective}, {BASELINE}"] = partial(_step, linear, rows)
    samples = await interleaved(sides, num_repeats=NUM_REPEATS)
    measured = {name: sample["processor_s"] for name, sample in samples.items()}
    return [row for objective in _objectives(shape) for row in _rows(shape, objective, layout, measured)]


def _objectives(shape: Shape) -> list[TrainObjective]:
    """Measure the slow second baseline for one shape only."""
    is_both = shape.percent_shared == WITH_ONCE
    return [TrainObjective.BY_LEAVES, TrainObjective.ONCE] if is_both else [TrainObjective.BY_LEAVES]


def _rows(
    shape: Shape, objective: TrainObjective, layout: TreeLayout, measured: dict[str, Measured]
) -> Iterator[Row]:
    tree, baseline = measured[f"{objective}, tree"], measured[f"{objective}, {BASELINE}"]
    name = f"{shape.percent_shared} % shared, {objective}"
    tokens = [
        Measured([float(count)] * NUM_REPEATS) for count in (layout.num_tokens, layout.num_linear_tokens)
    ]
    if objective is TrainObjective.BY_LEAVES:
        yield Row(f"{shape.percent_shared} % shared, tokens", "tokens", tokens[0], BASELINE, tokens[1])
    yield Row(f"{name}, step", "s", tree, BASELINE, baseline)
    bound = layout.num_linear_tokens / layout.num_tokens
    goal = None
    if shape.percent_shared in GOALS and objective is TrainObjective.BY_LEAVES:
        goal = Goal(SHARE_OF_BOUND, of=Quantity.RATIO)
    speed_ups = Measured([slow / fast for slow, fast in zip(baseline.values, tree.values, strict=True)])
    yield Row(
        f"{name}, speed-up", "×", speed_ups, "linear / tree tokens", Measured([bound] * NUM_REPEATS), goal
    )


async def _step(policy: Policy, passes: Sequence[Pass]) -> dict[str, float]:
    policy.zero_grad(set_to_none=True)
    started_s = time.process_time()
    for one in passes:
        one.run(policy)
    return {"processor_s": time.process_time() - started_s}


def tree_pass(
    layout: TreeLayout, ids: Tensor, is_trained: Flags, advantages: Floats, objective: TrainObjective
) -> Pass:
    tokens = np.flatnonzero(is_trained)
    weights = token_weights(layout, is_trained.astype(np.uint8), advantages, objective)
    columns = torch.from_numpy(layout.predecessors[tokens])
    both = torch.from_numpy((weights.positive + weights.negative)[tokens]).float()
    return Pass(ids[None], torch.zeros_like(columns), columns, ids[tokens], both, TreeBlocks(layout))


def linear_passes(
    shape: Shape,
    layout: TreeLayout,
    ids: Tensor,
    is_trained: Flags,
    advantages: Floats,
    objective: TrainObjective,
) -> Iterator[Pass]:
    paths = [np.concatenate([np.r_[piece] for piece in pieces]) for pieces in layout.paths()]
    branches = iter(zip(paths, advantages.tolist(), layout.sample_starts[:-1].tolist(), strict=True))
    while some := list(islice(branches, BUDGET_TOKENS // shape.num_path_tokens)):
        tokens = np.stack([path for path, _, _ in some])
        own = np.array([start for _, _, start in some])[:, None]
        counts = is_trained[tokens] & ((tokens >= own) | (objective is TrainObjective.BY_LEAVES))
        rows, places = (torch.from_numpy(axis) for axis in np.nonzero(counts))
        values = torch.tensor([value for _, value, _ in some])
        row_ids = ids[torch.from_numpy(tokens)]
        yield Pass(row_ids, rows, places - 1, row_ids[rows, places], values[rows], None)


def check_same_gradients(
    linear: Policy, rows: Sequence[Pass], on_trees: Policy, tree: Sequence[Pass]
) -> None:
    """Check that the sides do the same work, up to float32 rounding."""
    for policy, passes in ((linear, rows), (on_trees, tree)):
        policy.zero_grad(set_to_none=True)
        for one in passes:
            one.run(policy)
    for got, wanted in zip(on_trees.parameters(), linear.parameters(), strict=True):
        assert got.grad is not None
        assert wanted.grad is not None
        assert float((got.grad - wanted.grad).norm() / wanted.grad.norm()) < MAX_GRADIENT_ERROR


def random_model() -> PreTrainedModel:
    torch.manual_seed(0)
    model: PreTrainedModel = Qwen3ForCausalLM(Qwen3Config(**MODEL))
    model.eval()
    return model
