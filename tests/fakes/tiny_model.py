"""Run as a script with a folder: write the smallest model that trainers load there, the same each
time."""

import sys

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.fixtures.trainer_harness import VOCABULARY


def main(folder: str) -> None:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
