"""Builds and warm-starts the tiny Qwen3: plain supervised learning on assistant tokens, on the CPU.

It is short on purpose: it teaches format and copying and leaves the choice of strategy to reinforcement. The same seed
and number of threads give the same weights.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

from seamlessflow_workers.example.tokenizer import END, PAD, START

MAX_POSITIONS = 512
BATCH_SIZE = 32  # transcripts per step
PEAK_LEARNING_RATE = 4e-3
INITIALIZER_RANGE = 0.08  # about 1/sqrt(hidden): copying is learned in a third of the steps that 0.02 needs
NUM_WARMUP_STEPS = 10
PROGRESS_EVERY_STEPS = 20


@dataclass(frozen=True, slots=True)
class Example:
    """One transcript as tokens; `targets` marks the assistant's tokens, including the end of its turn."""

    tokens: Sequence[int]
    targets: Sequence[bool]


def build_model(tokenizer: Tokenizer, *, seed: int) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_POSITIONS,
        initializer_range=INITIALIZER_RANGE,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id(END),
        pad_token_id=tokenizer.token_to_id(PAD),
    )
    model = Qwen3ForCausalLM(config)
    model.float()
    return model


def encode_examples(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Example]:
    header = tokenizer.encode(f"{START}assistant\n").ids
    end = tokenizer.token_to_id(END)
    assert end is not None, "the tokenizer was made by train_tokenizer"
    encodings = tokenizer.encode_batch(list(texts))
    return [Example(encoding.ids, _assistant_targets(encoding.ids, header, end)) for encoding in encodings]


def warm_start(
    model: Qwen3ForCausalLM, examples: Sequence[Example], *, report: Callable[[int, int, float], None]
) -> None:
    """Train for one pass over the examples; call `report(step, num_steps, loss)` now and then."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=PEAK_LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0
    )
    model.train()
    num_steps = len(examples) // BATCH_SIZE
    for step, batch in enumerate(_iter_batches(examples)):
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(step, num_steps)
        loss = _target_loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % PROGRESS_EVERY_STEPS == 0 or step == num_steps - 1:
            report(step + 1, num_steps, loss.item())
    model.eval()


def save_model(model: Qwen3ForCausalLM, folder: Path) -> None:
    model.generation_config = GenerationConfig(
        eos_token_id=model.config.eos_token_id, pad_token_id=model.config.pad_token_id, do_sample=True
    )
    disable_progress_bar()
    model.save_pretrained(folder)


def _assistant_targets(tokens: Sequence[int], header: Sequence[int], end: int) -> list[bool]:
    targets = [False] * len(tokens)
    is_assistant = False
    for index in range(len(tokens)):
        if is_assistant:
            targets[index] = True
            is_assistant = tokens[index] != end
        elif list(tokens[index + 1 - len(header) : index + 1]) == list(header):
            is_assistant = True
    return targets


def _iter_batches(examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
    for start in range(0, len(examples) - BATCH_SIZE + 1, BATCH_SIZE):
        yield examples[start : start + BATCH_SIZE]


def _learning_rate(step: int, num_steps: int) -> float:
    if step < NUM_WARMUP_STEPS:
        return PEAK_LEARNING_RATE * (step + 1) / NUM_WARMUP_STEPS
    return PEAK_LEARNING_RATE * (0.1 + 0.45 * (1 + math.cos(math.pi * step / num_steps)))


def _target_loss(model: Qwen3ForCausalLM, batch: Sequence[Example]) -> torch.Tensor:
    """Return the mean cross-entropy over target tokens. Rows are padded on the right, which a causal mask ignores."""
    length = max(len(example.tokens) for example in batch)
    tokens = torch.zeros(len(batch), length, dtype=torch.long)
    targets = torch.zeros(len(batch), length, dtype=torch.bool)
    for row, example in enumerate(batch):
        tokens[row, : len(example.tokens)] = torch.tensor(example.tokens)
        targets[row, : len(example.targets)] = torch.tensor(example.targets)
    hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden[:, :-1][targets[:, 1:]])
    return functional.cross_entropy(logits, tokens[:, 1:][targets[:, 1:]])
