"""Attention by ranks of which each has some of the heads, against attention with all of them, in float64.

The ranks are tensors of one process here, and an exchange swaps the first two dimensions.
"""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from seamlessflow_workers.train.sequence_parallel.heads import (
    inputs_pack,
    inputs_unpack,
    num_key_copies,
    outputs_pack,
    outputs_unpack,
)

WIDTH, VALUE_WIDTH = 5, 3
SHAPES = [
    (num_heads, num_key_heads, num_ranks)
    for num_heads, num_key_heads, num_ranks in itertools.product(
        (1, 2, 4, 6, 12), (1, 2, 3, 4, 6, 12), (1, 2, 3, 4, 6)
    )
    if num_heads % num_key_heads == 0 and num_heads % num_ranks == 0
]


def swapped(by_rank: list[Tensor]) -> list[Tensor]:
    return list(torch.stack(by_rank).transpose(0, 1))


def shared_attention(inputs: list[Tensor], num_ranks: int) -> Tensor:
    """Return [R, T, H, E], computed by `num_ranks` ranks from query, key and value [R, heads, T, …]."""
    num_tokens = inputs[0].shape[2]
    padded = [torch.nn.functional.pad(part, (0, 0, 0, -num_tokens % num_ranks)) for part in inputs]
    slices = zip(*(part.chunk(num_ranks, 2) for part in padded), strict=True)
    packed, shapes = zip(*(inputs_pack(q, k, v, num_ranks) for q, k, v in slices), strict=True)
    outputs = []
    for received, own_shapes in zip(swapped(list(packed)), shapes, strict=True):
        query, key, value = inputs_unpack(received, own_shapes, num_tokens)
        output = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        outputs.append(outputs_pack(output.transpose(1, 2), num_ranks))
    returned = [
        outputs_unpack(received, own_shapes.num_query)
        for received, own_shapes in zip(swapped(outputs), shapes, strict=True)
    ]
    return torch.cat(returned, 1)[:, :num_tokens]


@settings(deadline=None, max_examples=30)
@given(shape=st.sampled_from(SHAPES), num_tokens=st.integers(1, 17), num_rows=st.integers(1, 2))
def test_ranks_together_compute_attention_and_its_gradient(
    shape: tuple[int, int, int], num_tokens: int, num_rows: int
) -> None:
    num_heads, num_key_heads, num_ranks = shape
    torch.manual_seed(num_tokens)
    sizes = [(num_heads, WIDTH), (num_key_heads, WIDTH), (num_key_heads, VALUE_WIDTH)]
    inputs = [
        torch.randn(num_rows, heads, num_tokens, width, dtype=torch.float64, requires_grad=True)
        for heads, width in sizes
    ]
    query, key, value = inputs
    expected = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True).transpose(
        1, 2
    )
    found = shared_attention(inputs, num_ranks)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    gradient = torch.randn_like(expected)
    for got, wanted in zip(
        torch.autograd.grad(found, inputs, gradient),
        torch.autograd.grad(expected, inputs, gradient),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "num_key_heads, num_ranks, copies", [(8, 4, 1), (2, 8, 4), (1, 3, 3), (2, 3, 3), (4, 6, 3)]
)
def test_key_heads_are_copied_no_more_often_than_ranks_need_them(
    num_key_heads: int, num_ranks: int, copies: int
) -> None:
    assert num_key_copies(num_key_heads, num_ranks) == copies
