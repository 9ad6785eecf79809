"""Trees against branch by branch, in float64: attention, then loss and gradients of whole models."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
    RwkvConfig,
    RwkvForCausalLM,
)

from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.algorithms.tree_weights import token_weights
from seamlessflow.core.job_spec import TrainObjective
from seamlessflow.core.trajectory.tree_layout import TreeLayout
from seamlessflow_workers.train.step.loss import TokenTerms, policy_loss
from seamlessflow_workers.train.step.policy import Policy
from seamlessflow_workers.train.trees.attention import TreeAttentionError, tile_mask, tree_attention_forward
from seamlessflow_workers.train.trees.blocks import TreeBlocks
from seamlessflow_workers.train.trees.support import TreeRefused, tree_attention_enable
from tests.fixtures.exact_models import SIZES, VOCABULARY, exact_model
from tests.fixtures.random_trees import ancestor_mask, branch_tokens, tree_layout_random, tree_layouts

TEMPERATURE = 0.8
ALGORITHM = AlgorithmSection(kl_coef=0.2, clip_low=0.1, clip_high=0.15)


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def policies(request: pytest.FixtureRequest) -> tuple[Policy, Policy]:
    """The same weights behind torch's own attention and behind the tree's."""
    plain, on_trees = exact_model(request.param), exact_model(request.param)
    tree_attention_enable(on_trees)
    return Policy(plain), Policy(on_trees)


@settings(deadline=None, max_examples=50)
@given(
    layout=tree_layouts(max_samples=8, max_length=40),
    num_key_heads=st.sampled_from([1, 2, 4]),
    value_width=st.sampled_from([16, 8]),
)
def test_attention_and_its_gradient_equal_the_masked_matrix(
    layout: TreeLayout, num_key_heads: int, value_width: int
) -> None:
    torch.manual_seed(layout.num_tokens)
    sizes = ((4, 16), (num_key_heads, 16), (num_key_heads, value_width))
    shapes = [(1, num, layout.num_tokens, width) for num, width in sizes]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    query, key, value = inputs
    found, _ = tree_attention_forward(torch.nn.Identity(), query, key, value, None, tree=TreeBlocks(layout))
    mask = torch.from_numpy(ancestor_mask(layout))
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, enable_gqa=True
    ).transpose(1, 2)
    gradient = torch.randn_like(found)
    torch.testing.assert_close(found, expected, atol=1e-11, rtol=0)
    for got, wanted in zip(
        torch.autograd.grad(found, inputs, gradient),
        torch.autograd.grad(expected, inputs, gradient),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted, atol=1e-11, rtol=0)


def flat_inputs(layout: TreeLayout, ids: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Token ids, rows, columns, targets: all of the tree in one row."""
    columns = torch.from_numpy(layout.predecessors)[tokens]
    return ids[None], torch.zeros_like(columns), columns, ids[tokens]


def make_targets(
    values: dict[str, Tensor], tokens: Tensor, weights: tuple[Tensor, Tensor, Tensor]
) -> TokenTerms:
    return TokenTerms(
        behaviour_logprobs=values["behaviour"][tokens],
        reference_logprobs=values["reference"][tokens],
        advantages_positive=weights[0],
        advantages_negative=weights[1],
        loss_weights=weights[2],
        sequences=torch.zeros(len(tokens), dtype=torch.int64),
        num_sequences=1,
        is_current=torch.ones(len(tokens), dtype=torch.bool),
    )


def branch_by_branch(
    policy: Policy,
    layout: TreeLayout,
    values: dict[str, Tensor],
    advantages: Tensor,
    objective: TrainObjective,
) -> tuple[Tensor, float]:
    """Sum of the branches' losses, each trained alone, and the number of tokens they train."""
    total, num_trained = torch.zeros((), dtype=torch.float64), 0
    for sample, branch in enumerate(branch_tokens(layout)):
        row = torch.tensor(branch)
        is_own = (row >= int(layout.sample_starts[sample])) | (objective is TrainObjective.BY_LEAVES)
        places = torch.nonzero(values["mask"][row].bool() & is_own)[:, 0]
        if not len(places):
            continue
        inputs = (values["ids"][row][None], torch.zeros_like(places), places - 1, values["ids"][row[places]])
        logprobs, _ = policy(*inputs, TEMPERATURE)
        value = advantages[sample].expand(len(places))
        ones = torch.ones(len(places), dtype=torch.float64)
        targets = make_targets(values, row[places], (value.clamp(min=0), value.clamp(max=0), ones))
        total = total + policy_loss(logprobs, targets, ALGORITHM).loss
        num_trained += len(places)
    return total / max(1, num_trained), num_trained


@settings(deadline=None, max_examples=25)
@given(
    layout=tree_layouts(max_samples=7, max_length=12),
    seed=st.integers(0, 2**31),
    objective=st.sampled_from(TrainObjective),
)
def test_loss_and_gradients_equal_branch_by_branch(
    policies: tuple[Policy, Policy], layout: TreeLayout, seed: int, objective: TrainObjective
) -> None:
    plain, on_trees = policies
    rng = np.random.default_rng(seed)
    mask = (rng.random(layout.num_tokens) < 0.7) & (layout.predecessors >= 0)
    advantages = torch.from_numpy(rng.normal(size=layout.num_samples))  # of both signs at shared tokens
    ids = torch.from_numpy(rng.integers(0, VOCABULARY, layout.num_tokens))
    tokens = torch.from_numpy(np.flatnonzero(mask))
    if not len(tokens):
        return
    inputs = (*flat_inputs(layout, ids, tokens), TEMPERATURE, TreeBlocks(layout))
    for parameter in (*plain.parameters(), *on_trees.parameters()):
        parameter.grad = None
    logprobs, _ = on_trees(*inputs)
    noise = torch.from_numpy(rng.normal(0, 0.2, (2, len(tokens))))
    values = {"ids": ids, "mask": torch.from_numpy(mask)}
    for name, part in zip(("behaviour", "reference"), noise, strict=True):
        values[name] = torch.zeros(layout.num_tokens, dtype=torch.float64)
        values[name][tokens] = logprobs.detach() + part  # near the policy: some ratios are clipped, some not

    expected, num_trained = branch_by_branch(plain, layout, values, advantages, objective)
    expected.backward()
    weights = token_weights(layout, mask.astype(np.uint8), advantages.numpy(), objective)
    assert weights.weights.sum() == num_trained
    arrays = (weights.positive, weights.negative, weights.weights)
    positive, negative, total = (torch.from_numpy(array)[tokens] for array in arrays)
    terms = make_targets(values, tokens, (positive, negative, total))
    loss = policy_loss(logprobs, terms, ALGORITHM).loss / num_trained
    loss.backward()

    assert float(loss.detach()) == pytest.approx(float(expected.detach()), abs=1e-10)
    for (name, got), wanted in zip(on_trees.named_parameters(), plain.parameters(), strict=True):
        assert got.grad is not None, name
        assert wanted.grad is not None, name
        assert torch.allclose(got.grad, wanted.grad, atol=1e-10, rtol=0), name


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**31), tile=st.sampled_from([1, 4, 16, 128]))
def test_tiles_hold_the_whole_mask_and_full_ones_nothing_but_it(seed: int, tile: int) -> None:
    rng = np.random.default_rng(seed)
    layout = tree_layout_random(rng, num_samples=int(rng.integers(1, 12)), max_length=40)
    mask, tiles = ancestor_mask(layout), TreeBlocks(layout).tiles(tile)
    seen = np.zeros_like(mask)
    for row, (num_partial, num_full) in enumerate(zip(tiles.partial_counts, tiles.full_counts, strict=True)):
        here = slice(row * tile, (row + 1) * tile)
        partial = tiles.partial_columns[row, :num_partial].tolist()
        full = tiles.full_columns[row, :num_full].tolist()
        assert not set(partial) & set(full)
        for column in full:
            assert mask[here, column * tile : (column + 1) * tile].all()
        for column in (*partial, *full):
            seen[here, column * tile : (column + 1) * tile] = True
    assert (seen | ~mask).all()
    empty = [
        (r, c)
        for r in range(len(tiles.full_counts))
        for c in range(r)
        if not mask[r * tile : (r + 1) * tile, c * tile : (c + 1) * tile].any()
    ]
    for row, column in empty:
        assert column not in tiles.partial_columns[row, : tiles.partial_counts[row]]


def test_flex_attention_is_given_the_ancestor_mask() -> None:
    layout = tree_layout_random(np.random.default_rng(3), num_samples=9, max_length=90)
    mask = tile_mask(TreeBlocks(layout), torch.device("cpu"))
    places = torch.arange(layout.num_tokens)
    is_set = mask.mask_mod(torch.tensor(0), torch.tensor(0), places[:, None], places[None, :])
    assert (is_set.numpy() == ancestor_mask(layout)).all()


def stateful(architecture: str) -> PreTrainedModel:
    if architecture == "mamba":
        return MambaForCausalLM(MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=2, state_size=4))
    if architecture == "rwkv":
        return RwkvForCausalLM(
            RwkvConfig(vocab_size=32, hidden_size=16, num_hidden_layers=2, context_length=32)
        )
    layers = ["linear_attention", "full_attention", "linear_attention"]
    return Qwen3NextForCausalLM(
        Qwen3NextConfig(**SIZES, head_dim=16, layer_types=layers, num_experts=2, num_experts_per_tok=1,
                        moe_intermediate_size=8, shared_expert_intermediate_size=8, linear_num_key_heads=2,
                        linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=8)
    )  # fmt: skip


@pytest.mark.parametrize("architecture", ["mamba", "rwkv", "qwen3_next"])
def test_layers_with_a_state_are_refused_with_the_way_out(architecture: str) -> None:
    with pytest.raises(TreeRefused, match=r"carry a state from token to token.*set train\.tree to false"):
        tree_attention_enable(stateful(architecture))


def test_what_the_configuration_does_not_tell_the_probe_finds() -> None:
    """A layer that mixes each token with its neighbour, as a token shift or short convolution does."""
    model = exact_model("llama")
    mlp = model.get_submodule("model.layers.1.mlp")
    mlp.register_forward_pre_hook(lambda _module, inputs: (inputs[0] + inputs[0].roll(1, dims=1),))
    with pytest.raises(TreeRefused, match="logits on a tree differ from those on the branches"):
        tree_attention_enable(model)
    assert model.config._attn_implementation == "sdpa"


def test_dropout_of_the_configuration_is_no_obstacle() -> None:
    model = LlamaForCausalLM(LlamaConfig(**SIZES, attention_dropout=0.5)).train()
    tree_attention_enable(model)
    assert not model.training


def test_a_sliding_window_is_refused_only_when_a_path_is_longer() -> None:
    model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=10))
    tree_attention_enable(model)
    policy, long = Policy(model), TreeLayout.of_lengths([11])
    row = torch.arange(11)[None]
    place = torch.tensor([3])
    with pytest.raises(TreeAttentionError, match="11 tokens is longer than the sliding window of 10"):
        policy(row, torch.zeros_like(place), place, place, 1.0, TreeBlocks(long))
    with pytest.raises(TreeAttentionError, match="did not get the tree"):
        policy(row, torch.zeros_like(place), place, place, 1.0)
    with pytest.raises(TreeRefused, match="sliding window of 4"):
        tree_attention_enable(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_narrow_numbers_stay_near_the_exact_result(dtype: torch.dtype) -> None:
    layout = tree_layout_random(np.random.default_rng(5), num_samples=9, max_length=60)
    generator = torch.Generator().manual_seed(0)
    exact = [torch.randn(1, num, layout.num_tokens, 16, generator=generator) for num in (4, 2, 2)]
    narrow = [part.to(dtype).requires_grad_() for part in exact]
    wide = [part.detach().double().requires_grad_() for part in narrow]
    tolerance = {torch.bfloat16: 0.03, torch.float32: 1e-5}[dtype]
    results = []
    for inputs in (narrow, wide):
        query, key, value = inputs
        output, _ = tree_attention_forward(
            torch.nn.Identity(), query, key, value, None, tree=TreeBlocks(layout)
        )
        gradients = torch.autograd.grad(output, inputs, torch.ones_like(output))
        results.append([part.double() for part in (output.detach(), *gradients)])
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, atol=tolerance * float(wanted.abs().max()), rtol=0)
