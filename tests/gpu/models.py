"""A random model whose size suits the device, and a plain forward pass to compare logprobs with."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 512
MAX_MODEL_LEN = 1024
# A processor only shows that the suite runs; a GPU is given something that it can be measured on (0.2 billion numbers).
SIZES: dict[str, dict[str, Any]] = {
    "cpu": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    "cuda": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 16, "num_attention_heads": 16},
}  # fmt: skip
INITIAL_RANGE = {"cpu": 0.15, "cuda": 0.04}  # wide, so that a wrong logprob shows


def build_model(folder: Path, *, device: torch.device, seed: int = 0) -> Path:
    """Write a Qwen3 with tied embeddings, in float32 files."""
    torch.manual_seed(seed)
    sizes = SIZES[device.type]
    config = Qwen3Config(
        **sizes,
        vocab_size=VOCABULARY,
        num_key_value_heads=sizes["num_attention_heads"] // 2,
        head_dim=32 if device.type == "cpu" else 64,
        max_position_embeddings=MAX_MODEL_LEN,
        initializer_range=INITIAL_RANGE[device.type],
        tie_word_embeddings=True,
        eos_token_id=2,
        bos_token_id=None,
        pad_token_id=0,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def load_plain(folder: Path, *, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    options: dict[str, Any] = {"dtype": dtype, "local_files_only": True, "attn_implementation": "sdpa"}
    model = AutoModelForCausalLM.from_pretrained(folder, **options)
    assert isinstance(model, PreTrainedModel)
    torch.nn.Module.to(model, device)
    model.eval()
    return model


@torch.no_grad()
def plain_logprobs(model: PreTrainedModel, prompt: list[int], answer: list[int]) -> NDArray[np.float64]:
    """Return [len(answer)], from one forward pass over everything without a cache."""
    tokens = torch.tensor([prompt + answer], device=model.device)
    logits = model(tokens).logits[0, len(prompt) - 1 : -1].double()
    chosen = logits.log_softmax(-1).gather(1, tokens[0, len(prompt) :, None])[:, 0]
    result: NDArray[np.float64] = chosen.cpu().numpy()
    return result
