"""Finds out whether the ranks of a group can compute a model's sequences together, and switches it to that.

Outside attention a rank sees only its slice of the tokens, so whatever else looks at other tokens (state-space layers,
convolutions, token shifts) or at the length of the whole row would compute something else. Such models are refused by
their configuration. Then a small row is run and compared with the same row on one rank. A refusal names the setting,
its value and the accepted ones, and is the same on every rank.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from seamlessflow.core.training.divisors import divisors_named
from seamlessflow.core.trajectory.tree_layout import TreeLayout
from seamlessflow_workers.train.sequence_parallel.attention import SEQUENCE_ATTENTION, SequencePass
from seamlessflow_workers.train.sequence_parallel.collectives import SequenceGroup
from seamlessflow_workers.train.sequence_parallel.slices import rows_pad, token_slice
from seamlessflow_workers.train.step_engine import ModelRefused
from seamlessflow_workers.train.trees.attention import TreeAttentionError
from seamlessflow_workers.train.trees.blocks import TreeBlocks
from seamlessflow_workers.train.trees.support import (
    PROBE_LAYOUT,
    PROBE_TOLERANCES,
    probe_ids,
    reason_against_other_attention,
)

# They scale positions by the length of the row, of which a rank sees only its slice.
_ROPE_BY_LENGTH = frozenset({"dynamic", "longrope"})


class SequenceRefused(ModelRefused):
    """The sequences of this model cannot be shared by so many ranks."""

    def __init__(self, model: PreTrainedModel, size: int, reason: str, way_out: str = "1") -> None:
        super().__init__(
            f"train.parallel.sequence is {size}, but {type(model).__name__} {reason}; accepted: {way_out}"
        )


def sequence_attention_enable(
    model: PreTrainedModel, group: SequenceGroup, *, is_tree: bool, num_path_tokens_max: int
) -> None:
    """Make `model` take `sequence=` and one rank's slice of the tokens. Every rank of the group must call it.

    With `is_tree` the model has been enabled for trees before. No path is longer than `num_path_tokens_max`. Raises
    SequenceRefused, after restoring the model.
    """
    _check_heads(model, group.size)
    reason = reason_against_other_attention(model) or _reason_against_slices(model, num_path_tokens_max)
    if reason is not None:
        raise SequenceRefused(model, group.size, f"cannot be split over ranks: {reason}")
    before = model.config._attn_implementation
    tree = TreeBlocks(PROBE_LAYOUT if is_tree else TreeLayout.of_lengths([PROBE_LAYOUT.num_tokens]))
    model.eval()  # a policy never drops anything
    expected = _whole_logits(model, tree, is_tree=is_tree)
    try:
        model.set_attn_implementation(SEQUENCE_ATTENTION)
        worst = group.largest(_deviation(model, group, tree, expected, is_tree=is_tree), expected.device)
    except (TreeAttentionError, TypeError, ValueError) as error:
        model.set_attn_implementation(before)
        raise SequenceRefused(model, group.size, f"cannot be split over ranks: {error}") from error
    if not worst <= PROBE_TOLERANCES[model.dtype]:
        model.set_attn_implementation(before)
        raise SequenceRefused(
            model, group.size, f"computes other logits on slices of a row than on the row (by {worst:.1%})"
        )


def _check_heads(model: PreTrainedModel, size: int) -> None:
    num_heads: Any = getattr(model.config.get_text_config(), "num_attention_heads", None)
    if not isinstance(num_heads, int):
        raise SequenceRefused(model, size, "has no single number of attention heads")
    if num_heads % size:
        raise SequenceRefused(model, size, f"has {num_heads} attention heads", divisors_named(num_heads))


def _reason_against_slices(model: PreTrainedModel, num_path_tokens_max: int) -> str | None:
    config: Any = model.config.get_text_config()
    layers = getattr(config, "layer_types", None) or ["sliding_attention"]
    window = getattr(config, "sliding_window", None) if "sliding_attention" in layers else None
    if window is not None and window < num_path_tokens_max:
        return f"its sliding window of {window} tokens is shorter than model.max_model_len, {num_path_tokens_max}"
    parameters: Any = getattr(config, "rope_parameters", None) or {}
    by_layer = [entry for entry in parameters.values() if isinstance(entry, dict)] or [parameters]
    if named := sorted({entry.get("rope_type", "default") for entry in by_layer} & _ROPE_BY_LENGTH):
        return f"its rope_type {named[0]!r} scales positions by the length of the row"
    return None


@torch.no_grad()
def _whole_logits(model: PreTrainedModel, tree: TreeBlocks, *, is_tree: bool) -> Tensor:
    """Return the logits of the probe's tokens, computed by this rank alone, [1, T, vocabulary]."""
    positions = torch.from_numpy(tree.layout.positions)[None].to(model.device)
    structure: dict[str, Any] = {"tree": tree} if is_tree else {}
    ids = probe_ids(model)[None].to(model.device)
    logits: Tensor = model(input_ids=ids, position_ids=positions, use_cache=False, **structure).logits
    return logits.float()


@torch.no_grad()
def _deviation(
    model: PreTrainedModel, group: SequenceGroup, tree: TreeBlocks, expected: Tensor, *, is_tree: bool
) -> float:
    """Return how far the logits of this rank's slice are from the expected ones, relative to the largest."""
    rows = rows_pad(probe_ids(model).numpy()[None], group.size)
    own = token_slice(
        rows,
        np.arange(tree.layout.num_tokens),
        rank=group.rank,
        num_ranks=group.size,
        positions=tree.layout.positions,
    )
    structure: dict[str, Any] = {"tree": tree} if is_tree else {}
    positions = torch.from_numpy(own.positions).to(model.device)
    logits = model(
        input_ids=torch.from_numpy(own.token_ids).to(model.device),
        position_ids=positions,
        use_cache=False,
        sequence=SequencePass(group, tree.layout.num_tokens, positions),
        **structure,
    ).logits
    if not len(own.predictions):
        return 0.0
    found = logits[:, : len(own.predictions)].float()
    return float((found - expected[:, own.predictions]).abs().max() / expected.abs().max())
