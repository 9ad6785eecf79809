"""Inputs of checkpointed layers wait on the host: exactly these, once per layer, and the gradient is the same."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from seamlessflow_workers.train.step import activations
from seamlessflow_workers.train.step.activations import checkpoints_enable

NUM_LAYERS, WIDTH, NUM_TOKENS = 3, 16, 5


def make_model() -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=32,
        hidden_size=WIDTH,
        intermediate_size=16,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    model: PreTrainedModel = Qwen3ForCausalLM(config)
    model.train()
    return model


def gradients(model: PreTrainedModel) -> list[Tensor]:
    ids = torch.arange(NUM_TOKENS)[None]
    model(input_ids=ids, use_cache=False).logits.square().sum().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_only_the_inputs_of_layers_wait_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, ...]] = []
    returned: list[tuple[int, ...]] = []

    def on_host(**_: Any) -> torch.autograd.graph.saved_tensors_hooks:
        def pack(tensor: Tensor) -> Tensor:
            taken.append(tuple(tensor.shape))
            return tensor.clone()

        def unpack(tensor: Tensor) -> Tensor:
            returned.append(tuple(tensor.shape))
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    monkeypatch.setattr(activations, "save_on_cpu", on_host)
    plain, offloaded = make_model(), make_model()
    checkpoints_enable(offloaded, is_on_host=True)

    found, expected = gradients(offloaded), gradients(plain)

    inputs = [(1, NUM_TOKENS, WIDTH)] * NUM_LAYERS
    assert [shape for shape in taken if len(shape) == 3] == inputs
    assert [shape for shape in returned if len(shape) == 3] == inputs
    assert len(found) == len(expected) > 0
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, atol=0, rtol=0)
