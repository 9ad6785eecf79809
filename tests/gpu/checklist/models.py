"""Random models of wanted sizes, made on the machine itself."""

from pathlib import Path

from transformers import Qwen3Config

from tests.benchmarks.scale_out.random_model import model_write

HEAD_WIDTH = 128


def qwen3_write(
    folder: Path, *, num_layers: int, width: int, vocabulary: int, max_positions: int = 4096
) -> Path:
    """Write a Qwen3 in bfloat16 in the proportions of the 1.7B one: 128-wide heads, two for each of the keys, a
    feed-forward three times as wide as the model, and a tied head."""
    num_heads = width // HEAD_WIDTH
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads // 2,
        head_dim=HEAD_WIDTH,
        max_position_embeddings=max_positions,
        tie_word_embeddings=True,
        eos_token_id=2,
        bos_token_id=None,
        pad_token_id=0,
        dtype="bfloat16",
    )
    model_write(folder, config)
    return folder
