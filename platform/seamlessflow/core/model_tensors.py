"""Facts about a model folder's tensors that follow from their names."""

import re
from collections.abc import Collection

_LAYER = re.compile(r"(?:(?:model|language_model)\.)*layers\.(?P<number>\d+)\.")
_PREDICTOR = re.compile(r"(?:^|\.)mtp(?:_layers)?\.")
_ROUTED = re.compile(r"\.experts\.")
_FEED_FORWARD = re.compile(r"\.mlp\.")


def is_beside_model(name: str, *, num_layers: int) -> bool:
    """Whether a tensor of a folder belongs to layers that only predict further tokens (multi-token prediction).

    They follow the last layer of the model (DeepSeek-V3, GLM-4.5) or have a module of their own (Qwen3-Next). Neither
    the trainer nor an engine that samples one token at a time uses them.
    """
    if _PREDICTOR.search(name):
        return True
    layer = _LAYER.match(name)
    return layer is not None and int(layer["number"]) >= num_layers


def is_of_routed_expert(name: str) -> bool:
    """Whether a tensor belongs to the experts among which a router chooses, not to shared ones."""
    return _ROUTED.search(name) is not None


def adaptable_layers(layers: Collection[str], *, is_mixture: bool) -> list[str]:
    """Return the linear layers that an adapter may change: in a mixture of experts, not those of feed-forward blocks.

    peft takes the layers of such a block, shared experts and dense layers included, for layers of the routed experts,
    which transformers keeps in stacked parameters.
    """
    return [name for name in layers if not (is_mixture and _FEED_FORWARD.search(name))]
