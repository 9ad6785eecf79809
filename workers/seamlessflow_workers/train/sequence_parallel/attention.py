"""Attention over sequences whose tokens lie on several ranks.

It is registered with transformers as `SEQUENCE_ATTENTION`; the model's forward pass takes this rank's slice of the
tokens, `sequence=SequencePass`, and `tree=TreeBlocks` if the row is a flat tree. Queries, keys and values are exchanged
so that each rank has all tokens of some heads, which makes attention the same as on one rank, trees included.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from seamlessflow_workers.train.sequence_parallel.collectives import SequenceGroup
from seamlessflow_workers.train.sequence_parallel.heads import (
    inputs_pack,
    inputs_unpack,
    outputs_pack,
    outputs_unpack,
)
from seamlessflow_workers.train.sequence_parallel.slices import Deal
from seamlessflow_workers.train.trees.attention import (
    TreeAttentionError,
    attention_options_check,
    tree_attention_forward,
)
from seamlessflow_workers.train.trees.blocks import TreeBlocks

SEQUENCE_ATTENTION = "seamlessflow_sequence"


@dataclass(frozen=True, slots=True)
class SequencePass:
    """What a forward pass on several ranks must know of this rank's slice."""

    group: SequenceGroup
    num_tokens: int  # of each whole row, without the padding that makes it divisible by the ranks
    positions: Tensor  # [1, L / N] each token's position on its own path
    deal: Deal | None = None  # None: each output head computes what its own rank's tokens predict

    def dealt(self, chosen: Tensor) -> Tensor:
        """Return [m, C], of which this rank's output head makes predictions, for its own tokens' [n, C]."""
        if self.deal is None:
            return chosen
        return self.group.deal(chosen, self.deal.num_sent, self.deal.num_received)


def sequence_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    sequence: SequencePass | None = None,
    tree: TreeBlocks | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return [R, L / N, H, E] for query [R, H, L / N, D], key [R, G, L / N, D] and value [R, G, L / N, E].

    Raises TreeAttentionError, on every rank alike.
    """
    if sequence is None:
        raise TreeAttentionError(
            f"{type(module).__name__} did not get the sequence: its model drops arguments"
        )
    packed, shapes = inputs_pack(query, key, value, sequence.group.size)
    inputs = inputs_unpack(sequence.group.exchange(packed), shapes, sequence.num_tokens)
    if tree is None:
        output = _causal(*inputs, attention_mask, **options)
    else:
        output, _ = tree_attention_forward(module, *inputs, attention_mask, tree=tree, **options)
    returned = sequence.group.exchange(outputs_pack(output, sequence.group.size))
    return outputs_unpack(returned, shapes.num_query), None


AttentionInterface.register(SEQUENCE_ATTENTION, sequence_attention_forward)


def _causal(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    **options: Any,
) -> Tensor:
    """Return [R, T, H, E]: each token attends to itself and those before it in its row."""
    attention_options_check(attention_mask, num_path_tokens=query.shape[2], **options)
    output = scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling, enable_gqa=key.shape[1] != query.shape[1]
    )
    return output.transpose(1, 2)
