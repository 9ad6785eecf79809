"""What the names of tensors tell."""

import pytest

from seamlessflow.core.model_tensors import adaptable_layers, is_beside_model, is_of_routed_expert


@pytest.mark.parametrize(
    "name,is_beside",
    [
        ("model.layers.61.mlp.experts.3.gate_proj.weight", True),
        ("model.layers.61.eh_proj.weight", True),
        ("model.language_model.layers.61.enorm.weight", True),
        ("mtp.layers.0.input_layernorm.weight", True),
        ("model.mtp_layers.0.norm.weight", True),
        ("model.layers.60.mlp.experts.61.gate_proj.weight", False),
        ("model.visual.layers.70.norm.weight", False),
        ("lm_head.weight", False),
    ],
)
def test_only_layers_that_predict_further_tokens_are_beside_the_model(name: str, is_beside: bool) -> None:
    assert is_beside_model(name, num_layers=61) == is_beside


def test_shared_experts_are_not_among_those_that_a_router_chooses() -> None:
    assert is_of_routed_expert("model.layers.3.mlp.experts.7.up_proj.weight")
    assert is_of_routed_expert("model.layers.3.mlp.experts.gate_up_proj")
    assert not is_of_routed_expert("model.layers.3.mlp.shared_experts.up_proj.weight")


def test_adapter_of_a_mixture_changes_attention_only() -> None:
    attention, dense, shared = (
        "model.layers.0.self_attn.q_proj",
        "model.layers.0.mlp.up_proj",
        "model.layers.1.mlp.shared_experts.up_proj",
    )
    assert adaptable_layers([attention, dense, shared], is_mixture=True) == [attention]
    assert adaptable_layers([attention, dense], is_mixture=False) == [attention, dense]
