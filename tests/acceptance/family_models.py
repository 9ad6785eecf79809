"""Tiny models of other families than Qwen3, with their real vocabularies: random weights, taught one tool loop.

`family_model` writes a folder that jobs train from. A model with random weights alone would never call a tool.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, DeepseekV3Config, LlamaConfig, MistralConfig, PretrainedConfig
from transformers.utils.logging import disable_progress_bar

from seamlessflow.core.families import ModelFamily
from seamlessflow.data_plane.turns.rendering.chat_template import template_messages
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from tests.fixtures.family_cases import CASES, TOOLS
from tests.fixtures.real_tokenizers import RealModel

QUESTION = "1 < 2?"
RESULT = "3.0!"
ANSWER = "It is 3."
MAX_STEPS = 400
MAX_POSITIONS = 1024
ENOUGH_LOSS = 0.02  # nats per token
SHARPER = 2.0  # the factor on the logits after that: most answers of 70 tokens then come out right
LEARNING_RATE = 1e-2


def _deepseek_config(**sizes: Any) -> PretrainedConfig:
    """A mixture of experts with latent attention."""
    latent = {
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
    }
    experts = {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "n_group": 2,
        "topk_group": 1,
    }
    heads = {"num_key_value_heads": sizes["num_attention_heads"], "head_dim": latent["qk_rope_head_dim"]}
    return DeepseekV3Config(**{**sizes, **latent, **experts, **heads, "first_k_dense_replace": 1})


# Llama's is computed by the engine's dense decoder, the others by its generic one.
_CONFIGS: dict[ModelFamily, Callable[..., PretrainedConfig]] = {
    ModelFamily.LLAMA3: LlamaConfig,
    ModelFamily.MISTRAL: MistralConfig,
    ModelFamily.DEEPSEEK_V31: _deepseek_config,
}


def called(model: RealModel) -> str:
    """Return an answer of the family that calls a tool."""
    return next(case.text for case in CASES if case.family is model.family and len(case.calls) == 2)


def family_model(folder: Path, model: RealModel) -> Path:
    """Write a model of the family that calls two tools and then answers."""
    text = model_text_load(model.write(folder))
    torch.manual_seed(0)
    config = _CONFIGS[model.family](
        vocab_size=text.tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=MAX_POSITIONS,
        initializer_range=0.1,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=text.end_ids[0],
        pad_token_id=None,
    )
    policy: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    _teach(policy, *_tool_loop(text, model))
    disable_progress_bar()
    policy.save_pretrained(folder)
    return folder


def _tool_loop(text: ModelText, model: RealModel) -> tuple[list[int], list[int]]:
    """Return the tokens of a tool loop, and the positions of those that the model samples."""
    case = next(case for case in CASES if case.text == called(model) and case.family is model.family)
    calls = [
        {
            "id": f"call0000{number}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for number, (name, arguments) in enumerate(case.calls)
    ]
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    messages.append({"role": "assistant", "content": "", "tool_calls": calls})
    messages += [{"role": "tool", "tool_call_id": call["id"], "content": RESULT} for call in calls]
    prompt, whole = (_rendered(text, messages[:1]), _rendered(text, messages))
    after_call = whole[whole.rindex(model.end, 0, whole.index(RESULT)) + len(model.end) :]
    pieces = [prompt, case.text + model.end, after_call, ANSWER + model.end]
    ids = [np.frombuffer(text.encode(piece), dtype="<i4").tolist() for piece in pieces]
    starts = np.cumsum([0, *map(len, ids)]).tolist()
    return [token for piece in ids for token in piece], [
        *range(starts[1], starts[2]),
        *range(starts[3], starts[4]),
    ]


def _rendered(text: ModelText, messages: list[dict[str, Any]]) -> str:
    shown = template_messages(messages, has_text_arguments=text.family.has_text_arguments)
    return text.template.render(shown, tools=TOOLS, arguments={}, add_generation_prompt=True)


def _teach(policy: Any, tokens: list[int], sampled: list[int]) -> None:
    """Teach the tokens at these positions until the loss is low."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    targets = torch.tensor([tokens[at] for at in sampled])
    before = torch.tensor([at - 1 for at in sampled])
    for _ in range(MAX_STEPS):
        hidden = policy.model(torch.tensor([tokens])).last_hidden_state[0, before]
        loss = functional.cross_entropy(policy.lm_head(hidden), targets)
        if loss.item() < ENOUGH_LOSS:
            policy.model.norm.weight.data *= SHARPER
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    raise AssertionError(f"the tiny model did not learn its tool loop: loss {loss.item():.3f}")
