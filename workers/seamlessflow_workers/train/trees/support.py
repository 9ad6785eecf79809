"""Finds out whether a model can be trained on flat trees, and switches it to tree attention.

On a flat tree siblings are adjacent, so anything that carries state from token to token (state-space layers,
convolutions, token shifts) or looks at neighbours (sliding windows) would leak from one branch into the next. Such
models are refused by their configuration. Then a small tree is run and compared with its branches, which also catches
what the configuration does not show. A refusal gives the reason and the way out, `train.tree: false`.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from seamlessflow.core.trajectory.tree_layout import TreeLayout
from seamlessflow_workers.train.step_engine import ModelRefused
from seamlessflow_workers.train.trees.attention import TREE_ATTENTION, TreeAttentionError
from seamlessflow_workers.train.trees.blocks import TreeBlocks

# Relative to the largest logit: bfloat16 has 8 bits, and sums over a model's depth lose some more.
PROBE_TOLERANCES = {torch.bfloat16: 0.1, torch.float16: 0.05, torch.float32: 1e-3, torch.float64: 1e-9}
PROBE_TOKEN_IDS = 97  # those of the probe are below it
# One fork in the middle of a sample and one near its beginning, so that siblings are adjacent.
PROBE_LAYOUT = TreeLayout(np.array([0, 6, 9, 11]), np.array([-1, 3, 1]))
_TREE_LAYERS = frozenset({"full_attention", "sliding_attention"})


class TreeRefused(ModelRefused):
    """The model cannot be trained on trees."""

    def __init__(self, model: PreTrainedModel, reason: str) -> None:
        super().__init__(
            f"{type(model).__name__} cannot be trained on trees: {reason}; set train.tree to false, "
            "which trains the branches one by one"
        )


def tree_attention_enable(model: PreTrainedModel) -> None:
    """Make `model` take `tree=`, and only that. Raises TreeRefused, after restoring the model."""
    reason = reason_against_other_attention(model)
    if reason is not None:
        raise TreeRefused(model, reason)
    before = model.config._attn_implementation
    ids = probe_ids(model)
    model.eval()  # a policy never drops anything
    expected = _branch_logits(model, ids)
    try:
        model.set_attn_implementation(TREE_ATTENTION)
        found = _tree_logits(model, ids)
    except (TreeAttentionError, TypeError, ValueError, RuntimeError) as error:
        model.set_attn_implementation(before)
        raise TreeRefused(model, str(error)) from error
    worst = float((found - expected).abs().max() / expected.abs().max())
    if not worst <= PROBE_TOLERANCES[model.dtype]:
        model.set_attn_implementation(before)
        raise TreeRefused(model, f"its logits on a tree differ from those on the branches (by {worst:.1%})")


def probe_ids(model: PreTrainedModel) -> Tensor:
    """Return tokens that the model knows, for PROBE_LAYOUT, [T]."""
    num_known: int = model.config.get_text_config().vocab_size
    return (torch.arange(PROBE_LAYOUT.num_tokens) * 7 + 3).remainder(min(PROBE_TOKEN_IDS, num_known))


def reason_against_other_attention(model: PreTrainedModel) -> str | None:
    """Return why only the model's own attention computes it, in a clause; None if ours can replace it."""
    config: Any = model.config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ())
    if model._is_stateful or (others := layers - _TREE_LAYERS):
        named = f" ({', '.join(sorted(others))})" if not model._is_stateful else ""
        return f"its layers{named} carry a state from token to token, outside attention"
    if not model._supports_attention_backend:
        return "its attention cannot be replaced"
    return None


@torch.no_grad()
def _branch_logits(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Return the logits of a tree's tokens, [T, vocabulary], each from the last branch that contains it."""
    logits: dict[int, Tensor] = {}
    for segments in PROBE_LAYOUT.paths():
        tokens = torch.cat([torch.arange(segment.start, segment.stop) for segment in segments])
        row = model(input_ids=ids[tokens][None].to(model.device), use_cache=False).logits[0]
        logits.update(zip(tokens.tolist(), row, strict=True))
    return torch.stack([logits[token] for token in range(len(ids))]).float()


@torch.no_grad()
def _tree_logits(model: PreTrainedModel, ids: Tensor) -> Tensor:
    positions = torch.from_numpy(PROBE_LAYOUT.positions)[None].to(model.device)
    inputs = {"input_ids": ids[None].to(model.device), "position_ids": positions, "use_cache": False}
    logits: Tensor = model(**inputs, tree=TreeBlocks(PROBE_LAYOUT)).logits[0]
    return logits.float()
