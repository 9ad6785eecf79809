"""Forward and backward pass over one flat tree of each size: its peak of memory, its time, and that of compiling.

Half of a tree is a prompt, and two levels of answers make sixteen branches, which written out would be nine times as
many tokens. The policy is the trainer's, in bfloat16 and with gradient checkpoints. Before, the gradients of a small
tree are compared in float32 with those of its branches.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from seamlessflow.core.job_spec import Dtype, TrainObjective
from seamlessflow_workers.train.step.policy import Policy, policy_load
from seamlessflow_workers.train.trees.support import tree_attention_enable
from tests.benchmarks import tree_training as branches
from tests.benchmarks.tree_training import Pass, Shape
from tests.gpu.checklist.checking import Figures, item_main, stopwatch
from tests.gpu.checklist.models import qwen3_write

NUM_LAYERS = {"cuda": 4, "cpu": 2}
WIDTH = {"cuda": 2048, "cpu": 256}
VOCABULARY = {"cuda": 32_768, "cpu": 4096}
EXACT = branches.SHAPES[1]  # 60 % shared, two trees
MAX_GROWTH = (
    1.5  # of memory per token, from the smallest tree to the largest; a mask of all pairs would grow by 8
)
OBJECTIVE = TrainObjective.BY_LEAVES


def check(device_name: str, sizes: list[str], figures: Figures) -> None:
    device = torch.device(device_name)
    if device_name == "cpu":
        figures.leave_out(
            "flex-attention, its compilation and its memory", "a processor computes block by block"
        )
    _check_exact(device, figures)
    num_tokens = [int(size) for size in sizes]
    with TemporaryDirectory() as folder:
        model = qwen3_write(
            Path(folder) / "model",
            num_layers=NUM_LAYERS[device_name],
            width=WIDTH[device_name],
            vocabulary=VOCABULARY[device_name],
            max_positions=max(num_tokens),
        )
        policy = policy_load(model, Dtype.BFLOAT16, is_tree=True, has_gradient_checkpoints=True)
    policy.to(device).train()
    peaks = [_measure(policy, size, device, figures) for size in num_tokens]
    per_token = [peak / size for peak, size in zip(peaks, num_tokens, strict=True)]
    assert per_token[-1] <= MAX_GROWTH * per_token[0], f"bytes per token grow with the tree: {per_token}"


def shape_of(num_tokens: int) -> Shape:
    """Return a tree of so many tokens, a multiple of 64."""
    return Shape(89, 1, num_tokens // 2, 4, num_tokens // 16, 4, num_tokens // 64)


def _check_exact(device: torch.device, figures: Figures) -> None:
    layout = EXACT.layout()
    chance = np.random.default_rng(0)
    ids = torch.from_numpy(chance.integers(0, branches.MODEL["vocab_size"], layout.num_tokens))
    is_trained, advantages = (
        layout.positions >= EXACT.num_prompt_tokens,
        chance.normal(size=layout.num_samples),
    )
    linear, on_tree = branches.random_model(), branches.random_model()
    for model in (linear, on_tree):
        torch.nn.Module.to(model, device)
    tree_attention_enable(on_tree)
    rows = branches.linear_passes(EXACT, layout, ids, is_trained, advantages, OBJECTIVE)
    tree = branches.tree_pass(layout, ids, is_trained, advantages, OBJECTIVE)
    branches.check_same_gradients(
        Policy(linear), [_moved(one, device) for one in rows], Policy(on_tree), [_moved(tree, device)]
    )
    figures.note(
        "tree against branches", tokens=layout.num_tokens, max_gradient_error=branches.MAX_GRADIENT_ERROR
    )


def _measure(policy: Policy, num_tokens: int, device: torch.device, figures: Figures) -> int:
    """Return the bytes of the card that a pass needs beside weights and gradients; 0 on a processor."""
    shape = shape_of(num_tokens)
    layout = shape.layout()
    assert layout.num_tokens == num_tokens
    chance = np.random.default_rng(0)
    ids = torch.from_numpy(chance.integers(0, VOCABULARY[device.type], num_tokens))
    advantages = chance.normal(size=layout.num_samples)
    made = branches.tree_pass(layout, ids, layout.positions >= shape.num_prompt_tokens, advantages, OBJECTIVE)
    one = _moved(made, device)
    first_s, _, _ = _passed(policy, one, device)
    step_s, peak, norm = _passed(policy, one, device)
    figures.note(
        f"tree of {num_tokens} tokens",
        first_s=first_s,  # with what is compiled for it
        step_s=step_s,
        compile_s=round(first_s - step_s, 3) if device.type == "cuda" else None,
        tokens_per_s=round(num_tokens / step_s),
        branch_tokens=layout.num_linear_tokens,
        peak_bytes=peak,
        grad_norm=norm,
    )
    assert 0 < norm < float("inf")
    return peak


def _passed(policy: Policy, one: Pass, device: torch.device) -> tuple[float, int, float]:
    """Return the seconds of a pass, the bytes that it needed at its peak, and the norm of the gradients."""
    policy.zero_grad(set_to_none=False)
    before = 0
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    with stopwatch() as watched:
        one.run(policy)
        norms = [p.grad.float().norm() for p in policy.parameters() if p.grad is not None]
        norm = float(torch.stack(norms).norm())
    peak = torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else 0
    return watched(), peak, norm


def _moved(one: Pass, device: torch.device) -> Pass:
    """Return the pass with its tensors on the device; a tree's tables follow by themselves."""
    names = ("token_ids", "rows", "columns", "targets", "advantages")
    return replace(one, **{name: getattr(one, name).to(device) for name in names})


if __name__ == "__main__":
    item_main(check)
