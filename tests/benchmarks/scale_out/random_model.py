"""Writes a random model of a wanted size to a folder, a layer at a time: it is never in memory as a whole."""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 32_768
_STD = 0.02


def config_of(num_layers: int, width: int) -> Qwen3Config:
    """Return a dense model with 64-wide heads, grouped four to one, and a tied output head."""
    return Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=num_layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 256,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        dtype="bfloat16",
    )


def model_write(folder: Path, config: Qwen3Config) -> None:
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in Qwen3ForCausalLM(config).named_parameters()}
    folder.mkdir()
    config.save_pretrained(folder)
    torch.manual_seed(0)
    files: dict[str, list[str]] = {}
    for name in shapes:
        part = name.split(".")[2] if name.startswith("model.layers.") else "others"
        files.setdefault(f"model-{part}.safetensors", []).append(name)
    for file, names in files.items():
        save_file({name: _values(name, shapes[name]) for name in names}, folder / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, names in files.items() for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _values(name: str, shape: torch.Size) -> Tensor:
    values = torch.empty(shape, dtype=torch.bfloat16)
    return values.fill_(1) if "norm" in name else values.normal_(std=_STD)


if __name__ == "__main__":
    model_write(Path(sys.argv[1]), config_of(int(sys.argv[2]), int(sys.argv[3])))
