"""The problems of a `config.json`, as far as they show without a framework.

Takes the mapping in the file; yields sentences that name a field, its value and the accepted ones. Invariant: a config
that transformers can make a causal language model of is not refused; a field that is absent has its family's default.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from seamlessflow.core.model_types import PLAIN_DECODERS, TRAINABLE_MODEL_TYPES

# GPT-2 and its kin name them otherwise.
NUM_LAYERS, HIDDEN_SIZE = ("num_hidden_layers", "n_layer"), ("hidden_size", "n_embd")
NUM_HEADS, VOCAB_SIZE = ("num_attention_heads", "n_head"), ("vocab_size",)
_COUNTS = (
    *NUM_LAYERS, *HIDDEN_SIZE, *NUM_HEADS, *VOCAB_SIZE, "num_key_value_heads", "head_dim", "max_position_embeddings",
    "n_positions",
)  # fmt: skip
# Some of these are absent, zero, or a list with one for each layer, as the family has it.
_SIZES = (
    "intermediate_size", "moe_intermediate_size", "num_experts", "num_local_experts", "n_routed_experts",
    "num_experts_per_tok", "kv_lora_rank", "q_lora_rank",
)  # fmt: skip
_NUMBERS = ("rms_norm_eps", "layer_norm_eps", "rope_theta")
_NUM_SUGGESTED = 3
_MAX_SHOWN = 60  # characters of a value


def text_config_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the section that describes the language model; models that also see or hear have others."""
    text = config.get("text_config")
    return text if isinstance(text, Mapping) else config


def count_of(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """Return a number that the config gives under one of these names; None if it gives none."""
    found = (config.get(name) for name in names)
    return next((value for value in found if type(value) is int), None)


def config_problems(config: Mapping[str, Any]) -> Iterator[str]:
    unknown = list(_type_problems(config))
    yield from unknown
    text = text_config_of(config)
    wrong = [
        *(
            _shown(name, text[name], "a whole number from 1 on")
            for name in _COUNTS
            if not _is_count(text, name)
        ),
        *(
            _shown(name, text[name], "whole numbers from 0 on")
            for name in _SIZES
            if not _is_size(text.get(name))
        ),
        *(
            _shown(name, text[name], "a number above 0")
            for name in _NUMBERS
            if not _is_number(text.get(name))
        ),
    ]
    yield from wrong
    if not (unknown or wrong):
        yield from _head_problems(text)


def _type_problems(config: Mapping[str, Any]) -> Iterator[str]:
    own = config.get("model_type")
    named = [own, text_config_of(config).get("model_type")] if isinstance(own, str) else []
    if any(isinstance(name, str) and name in TRAINABLE_MODEL_TYPES for name in named):
        return
    close = get_close_matches(str(own), sorted(TRAINABLE_MODEL_TYPES), n=_NUM_SUGGESTED)
    examples = ", ".join(close or ("llama", "mistral", "qwen3"))
    accepted = f"a kind of causal language model that transformers has, such as {examples}"
    yield (
        _shown("model_type", own, accepted)
        if "model_type" in config
        else f"it lacks model_type; accepted: {accepted}"
    )


def _head_problems(text: Mapping[str, Any]) -> Iterator[str]:
    num_heads, num_kv_heads = count_of(text, NUM_HEADS), text.get("num_key_value_heads")
    if num_heads is not None and num_kv_heads is not None and num_heads % num_kv_heads:
        yield _shown(
            "num_key_value_heads", num_kv_heads, f"a divisor of num_attention_heads, which is {num_heads}"
        )
    width, is_plain = count_of(text, HIDDEN_SIZE), text.get("model_type") in PLAIN_DECODERS
    if is_plain and num_heads and width is not None and text.get("head_dim") is None and width % num_heads:
        yield _shown(
            "hidden_size", width, f"a multiple of num_attention_heads, which is {num_heads}, or a head_dim"
        )


def _is_count(text: Mapping[str, Any], name: str) -> bool:
    value = text.get(name)
    return value is None or (type(value) is int and value > 0)


def _is_size(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_size, value))
    return value is None or (type(value) is int and value >= 0)


def _is_number(value: object) -> bool:
    return value is None or (type(value) in (int, float) and value > 0)  # type: ignore[operator]


def _shown(name: str, value: object, accepted: str) -> str:
    text = repr(value)
    text = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
    return f"{name} is {text}; accepted: {accepted}"
