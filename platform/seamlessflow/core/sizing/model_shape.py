"""The facts of a model that decide how much memory it needs.

Takes a model's `config.json` as a mapping, and the shapes of its tensors. The number of parameters is counted from the
tensors, because no formula knows every family; what one token keeps in an engine's cache follows from the config.
"""

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import msgspec

from seamlessflow.core.model_tensors import adaptable_layers, is_beside_model, is_of_routed_expert

LINEAR_LAYERS = frozenset(
    {"linear_attention", "mamba", "recurrent"}
)  # they keep a state, not keys and values


class InvalidModelConfig(ValueError):
    """A `config.json` lacks a number that every model of its kind has."""


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """`cached_values`: the numbers that one token keeps in all layers of an engine's cache; `adapted_sizes`: the input
    plus output features of each layer that an adapter may change, summed for each name; `num_routed_parameters`: those
    of experts among which a router chooses."""

    num_parameters: int
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    vocabulary_size: int
    cached_values: int
    adapted_sizes: dict[str, int] = {}
    num_routed_parameters: int = 0

    def num_adapter_parameters(self, rank: int, target_modules: Iterable[str]) -> int:
        """Return the size of a LoRA adapter: rank × (inputs + outputs) for each layer; no targets: all of them."""
        names = list(target_modules) or list(self.adapted_sizes)
        return rank * sum(self.adapted_sizes.get(name, 0) for name in names)


def model_shape(config: Mapping[str, Any], tensors: Iterable[tuple[str, tuple[int, ...]]]) -> ModelShape:
    """Read the shape of a model. `tensors`: names and shapes. Raises InvalidModelConfig."""
    text = config.get("text_config")
    config = text if isinstance(text, Mapping) else config
    num_layers, hidden_size = _number(config, "num_hidden_layers"), _number(config, "hidden_size")
    num_heads = _number(config, "num_attention_heads")
    num_kv_heads = _number(config, "num_key_value_heads", num_heads)
    sizes = {name: shape for name, shape in tensors if not is_beside_model(name, num_layers=num_layers)}
    routed = [prod(shape) for name, shape in sizes.items() if is_of_routed_expert(name)]
    return ModelShape(
        num_parameters=sum(map(prod, sizes.values())),
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        vocabulary_size=_number(config, "vocab_size"),
        cached_values=_num_caching_layers(config, num_layers) * _cached_per_layer(config, num_kv_heads),
        adapted_sizes=_adapted_sizes(sizes, is_mixture=bool(routed)),
        num_routed_parameters=sum(routed),
    )


def _adapted_sizes(shapes: Mapping[str, tuple[int, ...]], *, is_mixture: bool) -> dict[str, int]:
    layers = [
        name
        for name, shape in shapes.items()
        if name.endswith(".weight") and len(shape) == 2 and ".layers." in name
    ]
    found: dict[str, int] = {}
    for name in adaptable_layers(layers, is_mixture=is_mixture):
        layer = name.removesuffix(".weight").rsplit(".", 1)[-1]
        found[layer] = found.get(layer, 0) + sum(shapes[name])
    return found


def _cached_per_layer(config: Mapping[str, Any], num_kv_heads: int) -> int:
    """Return how many numbers a token keeps in one layer: keys and values, or their common compression (multi-head
    latent attention, DeepSeek-V2, arXiv 2405.04434, section 2.1)."""
    if config.get("kv_lora_rank"):
        return _number(config, "kv_lora_rank") + _number(config, "qk_rope_head_dim", 0)
    per_head = _number(config, "hidden_size") // max(_number(config, "num_attention_heads"), 1)
    return 2 * num_kv_heads * _number(config, "head_dim", per_head)


def _num_caching_layers(config: Mapping[str, Any], num_layers: int) -> int:
    kinds = config.get("layer_types")
    if not isinstance(kinds, list):
        return num_layers
    return sum(kind not in LINEAR_LAYERS for kind in kinds)


def _number(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = config.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if value is None and default is not None:
        return default
    raise InvalidModelConfig(f"{name} is {value!r}; a whole number is needed")
