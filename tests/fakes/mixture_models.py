"""Run as a script with a folder: write the smallest mixtures of experts, each in a folder of its family's name.

They start wide, so that routers are sure and experts matter. DeepSeek's router has a correction, and its folder has
tensors of a layer that predicts a further token.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from tests.fixtures.trainer_harness import VOCABULARY

FAMILIES = ("qwen3_moe", "deepseek_v3")
NUM_LAYERS, NUM_EXPERTS = 2, 4
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 16,
    "num_hidden_layers": NUM_LAYERS, "num_attention_heads": 2, "num_key_value_heads": 2, "num_experts_per_tok": 2,
    "max_position_embeddings": 64, "initializer_range": 0.15, "norm_topk_prob": True,
}  # fmt: skip


def build(family: str, *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """`changes`: of the configuration."""
    torch.manual_seed(seed)
    sizes = {**SIZES, **changes}
    if family == "qwen3_moe":
        qwen = {"num_experts": NUM_EXPERTS, "head_dim": 16, "tie_word_embeddings": True}
        return Qwen3MoeForCausalLM(Qwen3MoeConfig(**{**qwen, **sizes}))
    deepseek = {
        "n_routed_experts": NUM_EXPERTS, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
        "q_lora_rank": 12, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12,
        "num_nextn_predict_layers": 1, "routed_scaling_factor": 1.5,
    }  # fmt: skip
    model = DeepseekV3ForCausalLM(DeepseekV3Config(**{**deepseek, **sizes}))
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.normal_(0, 0.1)
    return model


def write(model: PreTrainedModel, folder: Path) -> None:
    """Save the model as its family publishes it; a model that can predict further tokens gets those tensors too."""
    model.save_pretrained(folder)
    if not getattr(model.config, "num_nextn_predict_layers", 0):
        return
    file = folder / "model.safetensors"
    tensors = load_file(file)
    predictor = f"model.layers.{model.config.num_hidden_layers}"
    last = f"model.layers.{model.config.num_hidden_layers - 1}."
    tensors |= {
        f"{predictor}.{name.removeprefix(last)}": tensor + 1
        for name, tensor in tensors.items()
        if name.startswith(last)
    }
    tensors[f"{predictor}.eh_proj.weight"] = torch.ones(SIZES["hidden_size"], 2 * SIZES["hidden_size"])
    save_file(tensors, file, metadata={"format": "pt"})


def main(folder: Path) -> None:
    for family in FAMILIES:
        write(build(family), folder / family)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
