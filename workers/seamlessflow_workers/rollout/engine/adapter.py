"""A LoRA adapter over a model folder: peft's files in, tensors of the policy that they make out.

Both engines put an adapter in place through `adapted_tensors`: base + (alpha / rank)·B·A for each layer it changes.
Every update starts from the folder's own weights, never from merged ones, so versions do not drift; what an earlier
update changed and this one does not is given back as the folder has it. Sums are in float32, whatever the number
format of the engine; the base is rounded to that format first, as the trainer has it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from seamlessflow_workers.rollout.engine.weights import (
    EMBEDDING,
    HEAD,
    check_tensor,
    read_tensors,
    safetensors_files,
)
from seamlessflow_workers.weights.arrival import WeightsError

CONFIG_NAME = "adapter_config.json"
FILE_NAME = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
# What of peft's options would make another sum than ours; each must be as here, or absent.
_PLAIN: dict[str, Any] = {
    "peft_type": "LORA",
    "bias": "none",
    "use_rslora": False,
    "use_dora": False,
    "fan_in_fan_out": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
}


@dataclass(frozen=True, slots=True)
class LowRank:
    """The change of one weight [outputs, inputs]: scale · up · down."""

    down: Tensor  # A [rank, inputs]
    up: Tensor  # B [outputs, rank]
    scale: float


class BaseWeights:
    """The tensors of a model folder, by name, read when asked for."""

    def __init__(self, folder: Path) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, Path] = {}
        for file in safetensors_files(folder):
            with safe_open(file, framework="pt") as shard:
                for name in shard.keys():  # noqa: SIM118 - safe_open is no mapping
                    self._files[name] = file
                    self.shapes[name] = tuple(shard.get_slice(name).get_shape())

    def read(self, name: str) -> Tensor:
        if name == EMBEDDING and name not in self._files:
            name = HEAD  # a tied model's folder may hold it under this name alone
        with safe_open(self._files[name], framework="pt") as shard:
            tensor: Tensor = shard.get_tensor(name)
        return tensor


def is_adapter(path: Path) -> bool:
    return (path / CONFIG_NAME).is_file()


def adapted_tensors(
    changes: Mapping[str, LowRank], base: BaseWeights, *, restored: Iterable[str], dtype: torch.dtype
) -> Iterator[tuple[str, Tensor]]:
    """(name, weight in `dtype`) of each changed layer, one at a time, then of `restored` ones as the folder has them.

    Raises WeightsError where a sum is not finite.
    """
    for name, change in changes.items():
        weight = merged(base.read(name), change, dtype)
        check_tensor(name, wanted=base.shapes[name], value=weight)
        yield name, weight
    for name in restored:
        if name not in changes:
            yield name, base.read(name).to(dtype)


def merged(base: Tensor, change: LowRank, dtype: torch.dtype) -> Tensor:
    """base + scale·B·A in `dtype`, computed in float32."""
    total = base.to(dtype).float().addmm(change.up.float(), change.down.float(), alpha=change.scale)
    return total.to(dtype)


def adapter_read(
    folder: Path, base: BaseWeights, tensors: Mapping[str, Tensor] | None = None
) -> dict[str, LowRank]:
    """Changes by the name of the weight. `tensors`: those of the folder's file, had already.

    Raises WeightsError unless all of them fit the model.
    """
    scale, rank = _read_config(folder / CONFIG_NAME)
    if tensors is None:
        tensors = read_tensors(folder / FILE_NAME)
    names = [name.removesuffix(_DOWN) for name in tensors if name.endswith(_DOWN)]
    if not names or tensors.keys() != {f"{name}{part}" for name in names for part in (_DOWN, _UP)}:
        raise WeightsError(f"{folder / FILE_NAME} holds something else than pairs of lora_A and lora_B")
    changes = {}
    for name in names:
        weight = f"{name.removeprefix(_PREFIX)}.weight"
        if weight not in base.shapes:
            raise WeightsError(f"the adapter changes {weight}, which the model does not have")
        num_outputs, num_inputs = base.shapes[weight]
        change = LowRank(down=tensors[f"{name}{_DOWN}"], up=tensors[f"{name}{_UP}"], scale=scale)
        check_tensor(f"{name}{_DOWN}", wanted=(rank, num_inputs), value=change.down)
        check_tensor(f"{name}{_UP}", wanted=(num_outputs, rank), value=change.up)
        changes[weight] = change
    return changes


def _read_config(path: Path) -> tuple[float, int]:
    """(scale, rank)."""
    try:
        config = json.loads(path.read_text())
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
        scale = alpha / rank
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise WeightsError(f"{path} does not configure an adapter: {error!r}") from error
    for key, plain in _PLAIN.items():
        if (value := config.get(key, plain)) != plain:
            raise WeightsError(f"{path} has {key} {value!r}, which this engine does not compute")
    return scale, rank
