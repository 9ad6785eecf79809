"""Whether the tensors of a model folder are those that its `config.json` describes, by names and shapes alone.

Takes a config without problems (`model_config`) and the shapes by name; yields sentences that name a tensor or a field.
The tensors of the plain decoders are known in full. Of the other families only the tensors common to all of them are
compared: the layers, the embeddings, and that no number of the config is out of proportion to the weights there are.
Invariant: nothing is as large as a number of the config says, so an absurd one costs neither time nor memory.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from seamlessflow.core.model_config import (
    HIDDEN_SIZE,
    NUM_LAYERS,
    VOCAB_SIZE,
    count_of,
    text_config_of,
)
from seamlessflow.core.model_types import PLAIN_DECODERS

Shape = tuple[int, ...]
_LAYER = re.compile(r"^(?:(?:model|language_model|transformer|gpt_neox)\.)*(?:layers|h)\.(?P<number>\d+)\.")
_EMBEDDING = re.compile(
    r"^(?:(?:model|language_model|transformer|gpt_neox)\.)*(?:embed_tokens|wte|word_embeddings|embed_in)\.weight$"
)
_HEAD = re.compile(r"^(?:language_model\.)*lm_head\.weight$")
# Each times the width, a model has at least so many parameters.
_COUNTED = (
    NUM_LAYERS, VOCAB_SIZE, ("n_positions",), ("num_experts",), ("num_local_experts",), ("n_routed_experts",),
)  # fmt: skip
# Embeddings may be narrower than the layers (OPT), and a pair of tied matrices may be stored once.
_PROPORTION = 4
_PLAIN_NUMBERS = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size",
)  # fmt: skip
_NUM_NAMED = 3


def weights_problems(config: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Iterator[str]:
    if "quantization_config" in config:  # then the tensors have other names and shapes
        return
    text = text_config_of(config)
    found = [
        *_proportion_problems(text, shapes),
        *_layer_problems(text, shapes),
        *_end_problems(config, shapes),
    ]
    yield from found
    if not found and config.get("model_type") in PLAIN_DECODERS:
        yield from _plain_problems(config, shapes)


def _proportion_problems(text: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Iterator[str]:
    """Compare products that every model of these numbers has at least as many parameters as."""
    limit = _PROPORTION * sum(map(prod, shapes.values()))
    width = count_of(text, HIDDEN_SIZE) or 1
    factors = {HIDDEN_SIZE: 1} if width > limit else dict.fromkeys(_COUNTED, width)
    for names, factor in factors.items():
        number = count_of(text, names)
        if number is not None and number * factor > limit:
            field = next(name for name in names if name in text)
            yield (
                f"{field} is {number}, which is too large for the {limit // _PROPORTION} numbers that the safetensors "
                "files have"
            )


def _layer_problems(text: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Iterator[str]:
    found = {int(match["number"]) for name in shapes if (match := _LAYER.match(name))}
    num_layers = count_of(text, NUM_LAYERS)
    if num_layers is None or not found:
        return
    field = next(name for name in NUM_LAYERS if name in text)
    missing = num_layers if num_layers > len(found) else len(set(range(num_layers)) - found)
    if missing:
        yield f"{field} is {num_layers}, but the safetensors files have {len(found)} layers, up to number {max(found)}"


def _end_problems(config: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Iterator[str]:
    text = text_config_of(config)
    ends = [name for name in shapes if _EMBEDDING.match(name)]
    if not _is_tied(config):  # a head that is stored beside is ignored otherwise
        ends += [name for name in shapes if _HEAD.match(name)]
    vocabulary, width = count_of(text, VOCAB_SIZE), count_of(text, HIDDEN_SIZE)
    for name in ends:
        shape = shapes[name]
        if len(shape) != 2 or (vocabulary or shape[0], width or shape[1]) != shape:
            known = [
                f"{field} {number}" for field, number in (("vocab_size", vocabulary), ("hidden_size", width))
            ]
            yield f"{name} has the shape {list(shape)}, but config.json says {' and '.join(known)}"


def _is_tied(config: Mapping[str, Any]) -> bool:
    return bool(config.get("tie_word_embeddings", text_config_of(config).get("tie_word_embeddings", False)))


def _plain_problems(config: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Iterator[str]:
    expected = _plain_shapes(config, prefix="" if "embed_tokens.weight" in shapes else "model.")
    if expected is None:
        return
    missing = sorted(name for name in expected if name not in shapes)
    if missing:
        others = f" and {len(missing) - _NUM_NAMED} others" if len(missing) > _NUM_NAMED else ""
        yield f"the safetensors files lack {', '.join(missing[:_NUM_NAMED])}{others}, which config.json calls for"
    wrong = [name for name in expected if shapes.get(name, expected[name]) != expected[name]]
    if wrong:
        name = wrong[0]
        others = f"; {len(wrong) - 1} others differ as well" if len(wrong) > 1 else ""
        yield (
            f"{name} has the shape {list(shapes[name])}, but config.json calls for {list(expected[name])}{others}"
        )


def _plain_shapes(config: Mapping[str, Any], *, prefix: str) -> dict[str, Shape] | None:
    """Return the tensors of a plain decoder; None if a number is not given, so that the family's default is used."""
    given = {name: count_of(config, (name,)) for name in _PLAIN_NUMBERS}
    # A tensor that is left out is derived from the others in some families, and has a value of its own in others.
    given["num_key_value_heads"] = given["num_key_value_heads"] or (
        given["num_attention_heads"] if config["model_type"] == "llama" else None
    )
    if given["head_dim"] is None and config["model_type"] != "qwen3" and given["num_attention_heads"]:
        given["head_dim"] = (given["hidden_size"] or 0) // given["num_attention_heads"]
    numbers = {name: number for name, number in given.items() if number is not None}
    if len(numbers) < len(given):
        return None
    vocabulary, width, num_layers = (
        numbers["vocab_size"],
        numbers["hidden_size"],
        numbers["num_hidden_layers"],
    )
    layer = _plain_layer(config, numbers)
    shapes: dict[str, Shape] = {
        f"{prefix}embed_tokens.weight": (vocabulary, width),
        f"{prefix}norm.weight": (width,),
    }
    if not _is_tied(config) and prefix:
        shapes["lm_head.weight"] = (vocabulary, width)
    return shapes | {
        f"{prefix}layers.{number}.{name}": shape
        for number in range(num_layers)
        for name, shape in layer.items()
    }


def _plain_layer(config: Mapping[str, Any], numbers: Mapping[str, int]) -> dict[str, Shape]:
    family, width, inner, head = (
        config["model_type"], numbers["hidden_size"], numbers["intermediate_size"], numbers["head_dim"]
    )  # fmt: skip
    q, kv = numbers["num_attention_heads"] * head, numbers["num_key_value_heads"] * head
    shapes: dict[str, Shape] = {
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        "self_attn.q_proj.weight": (q, width),
        "self_attn.k_proj.weight": (kv, width),
        "self_attn.v_proj.weight": (kv, width),
        "self_attn.o_proj.weight": (width, q),
        "mlp.gate_proj.weight": (inner, width),
        "mlp.up_proj.weight": (inner, width),
        "mlp.down_proj.weight": (width, inner),
    }
    if family == "qwen2" or (family != "mistral" and config.get("attention_bias")):
        shapes |= {
            "self_attn.q_proj.bias": (q,),
            "self_attn.k_proj.bias": (kv,),
            "self_attn.v_proj.bias": (kv,),
        }
    if family == "qwen3":
        shapes |= {"self_attn.q_norm.weight": (head,), "self_attn.k_norm.weight": (head,)}
    return shapes
