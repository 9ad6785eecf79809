"""Lays out tensors for the two exchanges around attention (DeepSpeed-Ulysses, arXiv 2309.14509): shapes only.

Before attention each of N ranks has its slice of L / N tokens with all heads; after an exchange it has all tokens
with 1 / N of the heads, and a second exchange turns the result back. The exchanged tensor has the other rank as its
first dimension. Shapes: R rows, H query heads, G key heads, D numbers of a query or key in a head, E of a value.
"""

import math
from dataclasses import dataclass

from torch import Tensor
from torch import cat as concatenate
from torch.nn.functional import pad


@dataclass(frozen=True, slots=True)
class HeadShapes:
    """How many heads one rank has in attention, and how wide they are."""

    num_query: int
    num_key: int
    key_width: int
    value_width: int

    @property
    def sections(self) -> list[int]:
        return [
            self.num_query * self.key_width,
            self.num_key * self.key_width,
            self.num_key * self.value_width,
        ]


def num_key_copies(num_key_heads: int, num_ranks: int) -> int:
    """Return how often each key head is repeated, so that every rank gets whole ones for its query heads.

    That is 1 where the ranks divide the key heads. With H a multiple of both, copy m of lcm(G, N) serves the query
    heads m·H/lcm … (m + 1)·H/lcm, all of which used the original.
    """
    return math.lcm(num_key_heads, num_ranks) // num_key_heads


def inputs_pack(query: Tensor, key: Tensor, value: Tensor, num_ranks: int) -> tuple[Tensor, HeadShapes]:
    """Return [N, R, L / N, C]: for each rank its heads of query [R, H, L / N, D], key [R, G, …, D] and value [… E]."""
    copies = num_key_copies(key.shape[1], num_ranks)
    if copies > 1:
        key, value = key.repeat_interleave(copies, 1), value.repeat_interleave(copies, 1)
    shapes = HeadShapes(
        num_query=query.shape[1] // num_ranks,
        num_key=key.shape[1] // num_ranks,
        key_width=query.shape[3],
        value_width=value.shape[3],
    )
    by_rank = [_heads_by_rank(tensor, num_ranks) for tensor in (query, key, value)]
    return concatenate(by_rank, -1), shapes


def inputs_unpack(received: Tensor, shapes: HeadShapes, num_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return query [R, H / N, T, D], key and value of all T tokens, without padding, from [N, R, L / N, C]."""
    whole = received.transpose(0, 1).flatten(1, 2)[:, :num_tokens]
    query, key, value = whole.split(shapes.sections, -1)
    return (
        query.unflatten(-1, (shapes.num_query, -1)).transpose(1, 2),
        key.unflatten(-1, (shapes.num_key, -1)).transpose(1, 2),
        value.unflatten(-1, (shapes.num_key, -1)).transpose(1, 2),
    )


def outputs_pack(output: Tensor, num_ranks: int) -> Tensor:
    """Return [N, R, L / N, H / N · E]: for each rank its tokens, padded, of [R, T, H / N, E]."""
    flat = output.flatten(2)
    flat = pad(flat, (0, 0, 0, -flat.shape[1] % num_ranks))
    by_rank: Tensor = flat.unflatten(1, (num_ranks, -1)).transpose(0, 1)
    return by_rank.contiguous()


def outputs_unpack(received: Tensor, num_heads: int) -> Tensor:
    """Return [R, L / N, H, E] from [N, R, L / N, H / N · E], of which each rank has `num_heads` heads."""
    num_ranks = received.shape[0]
    by_token: Tensor = received.permute(1, 2, 0, 3).flatten(2).unflatten(-1, (num_ranks * num_heads, -1))
    return by_token


def _heads_by_rank(tensor: Tensor, num_ranks: int) -> Tensor:
    """Return [N, R, L, H / N · D] for [R, H, L, D]."""
    by_rank: Tensor = tensor.unflatten(1, (num_ranks, -1)).permute(1, 0, 3, 2, 4)
    return by_rank.flatten(3)
