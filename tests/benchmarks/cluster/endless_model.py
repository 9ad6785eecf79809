"""A tiny model from a seed that never ends a turn by itself, so only the request decides how long
an answer is.

It takes a folder and a shape and writes a Hugging Face folder with tokenizer and chat template. One
channel of the residual stream is the same positive number everywhere, because no layer writes to
it, and the output head reads every special token from this channel with a large negative weight.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from seamlessflow_workers.example.tasks import ExampleEnvironment
from seamlessflow_workers.example.tokenizer import (
    END,
    PAD,
    SPECIAL_TOKENS,
    save_tokenizer,
    train_tokenizer,
)
from seamlessflow_workers.example.transcripts import ChatTemplate, Stage, iter_transcripts
from seamlessflow_workers.example.warm_start import save_model
from tests.benchmarks.cluster.workloads import MAX_MODEL_LEN

HEAD_DIM = 32
CHANNEL = 0
CHANNEL_VALUE = 1.0
SPECIAL_WEIGHT = -20.0
NUM_TRANSCRIPTS = 500


@dataclass(frozen=True, slots=True)
class Shape:
    hidden_size: int = 192
    num_layers: int = 4


def endless_model_write(folder: Path, *, shape: Shape, seed: int) -> Path:
    """Write the model unless the folder exists already."""
    if (folder / "config.json").exists():
        return folder
    template = ChatTemplate()
    transcripts = iter_transcripts(
        ExampleEnvironment.ARITHMETIC, Stage.MIXTURE, num_transcripts=NUM_TRANSCRIPTS, seed=seed
    )
    tokenizer = train_tokenizer(template.render(transcript) for transcript in transcripts)
    torch.manual_seed(seed)
    num_heads = shape.hidden_size // HEAD_DIM
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=shape.hidden_size,
        intermediate_size=3 * shape.hidden_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads // 2,
        head_dim=HEAD_DIM,
        max_position_embeddings=MAX_MODEL_LEN,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id(END),
        pad_token_id=tokenizer.token_to_id(PAD),
    )
    model = Qwen3ForCausalLM(config)
    _silence(model, [tokenizer.get_vocab()[token] for token in SPECIAL_TOKENS])
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(tokenizer, folder)
    save_model(model, folder)
    return folder


@torch.no_grad()
def _silence(model: Qwen3ForCausalLM, token_ids: list[int]) -> None:
    model.model.embed_tokens.weight[:, CHANNEL] = CHANNEL_VALUE
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight[CHANNEL] = 0.0
        layer.mlp.down_proj.weight[CHANNEL] = 0.0
    model.lm_head.weight[token_ids] = 0.0
    model.lm_head.weight[token_ids, CHANNEL] = SPECIAL_WEIGHT
