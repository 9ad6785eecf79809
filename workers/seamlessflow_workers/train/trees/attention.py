"""Attention of each token to its ancestors in a flat tree, skipping everything that the tree masks.

It is registered with transformers as `TREE_ATTENTION`; the model's forward pass takes `tree=TreeBlocks` and positions
of the tokens on their own paths. On a CPU every block of `TreeBlocks` is one call of torch's flash kernel without a
mask. Partial results of a query are joined by their log-sum-exp; in the backward pass each block gets the joined output
and log-sum-exp, which makes its term of the gradient exact (as in ring attention, arXiv 2310.01889). On CUDA
flex-attention gets the same mask as tiles. Both support grouped-query heads.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad
from transformers import AttentionInterface

from seamlessflow_workers.train.trees.blocks import TILE, TreeBlocks

TREE_ATTENTION = "seamlessflow_tree"
_UNSUPPORTED = (
    "position_bias",
    "s_aux",
    "softcap",
)  # options of other kinds of attention, which would change the result

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


class TreeAttentionError(RuntimeError):
    """The model asks its attention for something that is impossible on trees, or along paths in general."""


def tree_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    tree: TreeBlocks | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return [1, T, H, V] for query [1, H, T, D], key [1, G, T, D] and value [1, G, T, V], H a multiple of G.

    Values are narrower than keys in latent attention (DeepSeek). Raises TreeAttentionError.
    """
    if tree is None:
        raise TreeAttentionError(f"{type(module).__name__} did not get the tree: its model drops arguments")
    if query.shape[0] != 1 or query.shape[2] != tree.layout.num_tokens or key.shape[2] != query.shape[2]:
        raise TreeAttentionError(
            f"expected one row of {tree.layout.num_tokens} tokens, got {tuple(query.shape)}"
        )
    attention_options_check(
        attention_mask,
        num_path_tokens=tree.num_path_tokens_max,
        dropout=dropout,
        sliding_window=sliding_window,
        **options,
    )
    scale = scaling if scaling is not None else float(query.shape[-1]) ** -0.5
    if query.device.type == "cuda":
        return _flex(query, key, value, tree, scale).transpose(1, 2).contiguous(), None
    width = value.shape[-1]
    if (
        width != query.shape[-1]
    ):  # the flash kernel takes one width only; columns of zeros change no other column
        value = pad(value, (0, query.shape[-1] - width))
    return BlockAttention.apply(query, key, value, tree, scale)[..., :width], None


AttentionInterface.register(TREE_ATTENTION, tree_attention_forward)


def attention_options_check(
    attention_mask: Tensor | None,
    *,
    num_path_tokens: int,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **options: Any,
) -> None:
    """Raise TreeAttentionError if a model asks for more than plain attention along paths of at most so many tokens."""
    if attention_mask is not None or dropout:
        raise TreeAttentionError("attention along paths cannot be combined with another mask or with dropout")
    if sliding_window is not None and num_path_tokens > sliding_window:
        raise TreeAttentionError(
            f"a path of {num_path_tokens} tokens is longer than the sliding window of {sliding_window}"
        )
    if named := [name for name in _UNSUPPORTED if options.get(name) is not None]:
        raise TreeAttentionError(f"attention with {', '.join(named)} cannot be computed along paths")


class BlockAttention(torch.autograd.Function):
    """Exact attention over the blocks of a tree, on a CPU."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, tree: TreeBlocks, scale: float
    ) -> Tensor:
        _, num_heads, num_tokens, width = query.shape
        wide = _wide(query.dtype)
        # In the layout that the next projection wants: [1, T, H, D].
        output = torch.empty(1, num_tokens, num_heads, width, dtype=wide).transpose(1, 2)
        logsumexp = torch.empty(1, num_tokens, num_heads, dtype=wide).transpose(1, 2)
        for own in tree.causal:
            partial, partial_sum = _flash(
                query[:, :, own], key[:, :, own], value[:, :, own], 0.0, True, scale=scale
            )
            output[:, :, own], logsumexp[:, :, own] = partial, partial_sum
        for block in tree.rectangles:
            q, k = block.queries, block.keys
            partial, partial_sum = _flash(
                query[:, :, q], key[:, :, k], value[:, :, k], 0.0, False, scale=scale
            )
            _join(output[:, :, q], logsumexp[:, :, q], partial, partial_sum)
        output = output.to(query.dtype)
        ctx.save_for_backward(query, key, value, output, logsumexp)
        ctx.tree, ctx.scale = tree, scale
        return output.transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, value, output, logsumexp = ctx.saved_tensors
        grad = grad_output.transpose(1, 2)
        wide = _wide(query.dtype)
        grad_query, grad_key, grad_value = (torch.zeros_like(x, dtype=wide) for x in (query, key, value))
        blocks = [(own, own, True) for own in ctx.tree.causal]
        blocks += [(block.queries, block.keys, False) for block in ctx.tree.rectangles]
        for q, k, is_causal in blocks:
            gradients = _flash_backward(
                grad[:, :, q], query[:, :, q], key[:, :, k], value[:, :, k], output[:, :, q], logsumexp[:, :, q],
                0.0, is_causal, scale=ctx.scale,
            )  # fmt: skip
            grad_query[:, :, q] += gradients[0]
            grad_key[:, :, k] += gradients[1]
            grad_value[:, :, k] += gradients[2]
        return grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype), None, None


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return the type of partial sums: at least float32."""
    return dtype if dtype == torch.float64 else torch.float32


def _join(output: Tensor, logsumexp: Tensor, partial: Tensor, partial_sum: Tensor) -> None:
    """Join attention over two sets of keys, into the first: outputs [1, H, N, D], log-sum-exps [1, H, N]."""
    joined = torch.logaddexp(logsumexp, partial_sum)
    output.mul_((logsumexp - joined).exp_()[..., None])
    output.addcmul_(partial.to(output.dtype), (partial_sum - joined).exp_()[..., None])
    logsumexp.copy_(joined)


def tile_mask(tree: TreeBlocks, device: torch.device) -> BlockMask:
    """Return the ancestor mask for flex-attention: kv is q or its ancestor iff kv ≤ q < descendant_ends[kv]."""
    num_tokens = tree.layout.num_tokens
    tiles = tree.tiles()
    # The last tile may reach beyond the end, where no token is anyone's ancestor. This is a padded table instead of a
    # clamp, because a number in the mask would be compiled into the kernel.
    padded = np.zeros(len(tiles.full_counts) * TILE, dtype=np.int64)
    padded[:num_tokens] = tree.layout.descendant_ends
    ends = torch.from_numpy(padded).to(device)

    def is_ancestor(_batch: Tensor, _head: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return (kv <= q) & (q < ends[kv])

    def table(array: NDArray[np.int32]) -> Tensor:
        return torch.from_numpy(array).to(device)[None, None]

    return BlockMask.from_kv_blocks(
        table(tiles.partial_counts),
        table(tiles.partial_columns),
        table(tiles.full_counts),
        table(tiles.full_columns),
        BLOCK_SIZE=TILE,
        mask_mod=is_ancestor,
        seq_lengths=(num_tokens, num_tokens),
    )


_compiled_flex: Any = None


def _flex(query: Tensor, key: Tensor, value: Tensor, tree: TreeBlocks, scale: float) -> Tensor:
    """Return [1, H, T, D]. The kernel is compiled once; a tree's tables are made once for all layers."""
    global _compiled_flex
    if _compiled_flex is None:
        _compiled_flex = torch.compile(flex_attention, dynamic=True)
    mask = tree.__dict__.get("_tile_mask")
    if mask is None:
        mask = tree.__dict__["_tile_mask"] = tile_mask(tree, query.device)
    result: Tensor = _compiled_flex(
        query, key, value, block_mask=mask, scale=scale, enable_gqa=key.shape[1] != query.shape[1]
    )
    return result
