"""A policy with random weights that closes what it opened: strings, objects and answers end after a few tokens.

It says nothing sensible, so whatever follows a schema in its answers follows it because of the guide. An ordinary
random model would rarely meet the one token that ends a string.
"""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.fixtures.guidance import END, NUM_TOKENS
from tests.fixtures.tiny_text import write_tiny_text

MAX_MODEL_LEN = 32_768  # a byte or little more is a token, and frameworks have long system prompts
HIDDEN = 32
CONSTANT = 3.0  # of every token's embedding in dimension 0, which the head reads
CLOSES, RARE, AVOIDED = 4.0, -4.0, -8.0  # logits, of 0 for any other token


def write_terse_model(folder: Path) -> str:
    """Write model and tokenizer; return the folder as text."""
    written = write_tiny_text(folder)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=NUM_TOKENS,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=MAX_MODEL_LEN,
        tie_word_embeddings=False,
        eos_token_id=END,
    )
    model = Qwen3ForCausalLM(config)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = CONSTANT
        # Dimension 0 is nearly all of a residual's norm, so it leaves the last normalisation as about sqrt(HIDDEN).
        for token in range(NUM_TOKENS):
            model.lm_head.weight[token, 0] = logit_of(tokenizer, token) / HIDDEN**0.5
    model.save_pretrained(folder)
    return written


def logit_of(tokenizer: Tokenizer, token: int) -> float:
    text = tokenizer.decode([token], skip_special_tokens=False)
    if text == "<think>" or not text.strip():
        return AVOIDED
    if token == END or set(text) <= set('"}]'):
        return CLOSES
    return RARE if "," in text or text == "<tool_call>" else 0.0
