"""The weights that replace an engine's own: a whole set, or an adapter over its model folder; all or nothing.

`WeightUpdates` takes a safetensors file, a folder of shards or a folder in peft's format, and returns tensors by name
that are proven to fit: every tensor of the model is there with its shape, floating and finite, and nothing else is.
That they are finite is not checked again if the manifest beside them says that the trainer did. If
the embeddings are tied, `lm_head.weight` may be included (senders always include it) and must equal the embedding. Both
kinds of engine stage their updates here.

A worker of an engine that is spread over devices needs only a slice of most tensors, and reads and checks that slice.
Files are mapped, so unread values take no memory, and of a sum that an adapter changes only the slice is computed.

An adapter adds (alpha / rank)·B·A to each layer that it changes. The sums start from the folder's own weights, never
from merged ones, so versions do not drift; tensors that the previous update changed and this one does not are restored
from the folder. Sums are computed in float32, whatever the engine's number format; the base is first rounded to that
format, as the trainer has it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from seamlessflow_workers.weights.manifest import (
    ADAPTER_CONFIG_NAME,
    ADAPTER_SHARD_NAME,
    WeightsReadError,
    manifest_read,
)
from seamlessflow_workers.weights.offers import WeightsError
from seamlessflow_workers.weights.page_cache import pages_load

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
MAX_NAMES_SHOWN = 3
_PAGE_BYTES = 4096
_PREFIX = "base_model.model."
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
# The options of peft that would give another sum than ours: each must have this value, or be absent.
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


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """What one worker needs of a tensor: `size` entries along `dim`, from `start`; none if `size` is 0."""

    dim: int
    start: int
    size: int

    def of(self, tensor: Tensor) -> Tensor:
        """Return this slice of a tensor, as a view."""
        return tensor.narrow(self.dim, self.start, self.size)


TensorSlices = Mapping[str, TensorSlice]  # by name; of tensors that are not listed, all is needed


@dataclass(frozen=True, slots=True)
class StagedUpdate:
    """`values` have their whole shapes, but only the slices that this worker needs were read and checked."""

    values: dict[str, Tensor]
    differing: frozenset[str]  # from the model folder, once `values` are loaded
    num_bytes: int  # of the slices


class BaseWeights:
    """The tensors of a model folder, by name; read on demand."""

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
            name = HEAD  # a tied model's folder may have it under this name only
        with safe_open(self._files[name], framework="pt") as shard:
            tensor: Tensor = shard.get_tensor(name)
        return tensor


class WeightUpdates:
    def __init__(
        self,
        folder: Path,
        shapes: Mapping[str, tuple[int, ...]],
        *,
        tied_embedding: str | None,
        dtype: torch.dtype,
        takes_whole_modules: bool = False,
        slices: TensorSlices = MappingProxyType({}),
    ) -> None:
        """`shapes`: every tensor of the engine by its name in a checkpoint, without the head if it is tied.

        `takes_whole_modules`: the engine fuses the weights of a module (queries, keys and values) into one tensor, so
        an update must include all weights of a module that it changes.
        `slices`: what this engine, or worker of an engine, needs of each tensor.
        """
        self._folder = folder
        self._shapes = shapes
        self._tied_embedding = tied_embedding
        self._dtype = dtype
        self._takes_whole_modules = takes_whole_modules
        self._slices = slices
        self._differing: frozenset[str] = frozenset()

    def stage(self, path: Path) -> StagedUpdate:
        """Read and check; nothing is changed. Raises WeightsError."""
        if is_adapter(path):
            changes = adapter_read(path, self._base)
            restored = self._differing - changes.keys()
            if self._takes_whole_modules:
                restored |= self._beside(restored | changes.keys())
            adapted = adapted_tensors(
                changes, self._base, restored=sorted(restored), dtype=self._dtype, slices=self._slices
            )
            values = dict(adapted)
            return StagedUpdate(values, frozenset(changes), self._num_bytes(values))
        values = read_tensors(path)
        is_proven = is_proven_finite(path)
        check_all(
            values,
            self._shapes,
            tied_embedding=self._tied_embedding,
            slices=self._slices,
            is_proven_finite=is_proven,
        )
        if is_proven:
            self._bring_into_memory(path, values)
        is_own = path == self._folder
        return StagedUpdate(values, frozenset() if is_own else frozenset(values), self._num_bytes(values))

    def _bring_into_memory(self, path: Path, values: Mapping[str, Tensor]) -> None:
        """Have the disk read now, and not when values are loaded: the slices that this engine or worker needs."""
        if self._num_bytes(values) < sum(value.nbytes for value in values.values()):
            for name, value in values.items():
                pages_touch(own_slice(name, value, self._slices))
            return
        for file in safetensors_files(path):
            try:
                pages_load(file)
            except OSError as error:
                raise WeightsError(f"{file} cannot be read: {error}") from error

    def applied(self, update: StagedUpdate) -> None:
        self._differing = update.differing

    def _num_bytes(self, values: Mapping[str, Tensor]) -> int:
        return sum(own_slice(name, value, self._slices).nbytes for name, value in values.items())

    @cached_property
    def _base(self) -> BaseWeights:
        return BaseWeights(self._folder)

    def _beside(self, names: frozenset[str]) -> frozenset[str]:
        """Return all tensors of the modules of these: for `….mlp.up_proj.weight` all of `….mlp`."""
        modules = {name.rsplit(".", 2)[0] for name in names}
        return frozenset(name for name in self._shapes if name.rsplit(".", 2)[0] in modules)


def check_all(
    values: dict[str, Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    tied_embedding: str | None,
    slices: TensorSlices,
    is_proven_finite: bool = False,
) -> None:
    """Check that these are exactly the tensors of `shapes`, and remove a tied head. Raises WeightsError.

    Of the values, only the slices are looked at.
    """
    if tied_embedding is not None:
        _check_tied(values, embedding_name=tied_embedding, slices=slices)
    _check_names(set(shapes), set(values))
    for name, shape in shapes.items():
        check_tensor(
            name, wanted=shape, value=values[name], own=slices.get(name), is_proven_finite=is_proven_finite
        )


def own_slice(name: str, value: Tensor, slices: TensorSlices) -> Tensor:
    """Return the needed slice of a tensor, as a view."""
    own = slices.get(name)
    return value if own is None else own.of(value)


def pages_touch(value: Tensor) -> None:
    """Read an element of each page that a mapped tensor is in, so that no disk is waited for later."""
    if value.ndim:
        for elements in (value[..., :: _PAGE_BYTES // value.element_size()], value[..., -1:]):
            elements.sum()


def is_proven_finite(path: Path) -> bool:
    """Whether the trainer checked the values of this folder before it wrote them."""
    try:
        return manifest_read(path).are_finite
    except WeightsReadError:  # a model folder, or a file
        return False


def safetensors_files(path: Path) -> list[Path]:
    """Return the file, or those of a folder. Raises WeightsError if there is none."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not path.exists():
        raise WeightsError(f"{path} does not exist")
    if not files:
        raise WeightsError(f"{path} has no .safetensors file")
    return files


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return all tensors of a file or folder by name. Raises WeightsError."""
    values: dict[str, Tensor] = {}
    for file in safetensors_files(path):
        try:
            with safe_open(file, framework="pt") as shard:
                for name in shard.keys():  # noqa: SIM118 - safe_open is no mapping
                    if name in values:
                        raise WeightsError(f"{name} is in two shards of {path}")
                    values[name] = shard.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{file} cannot be read as safetensors: {error}") from error
    return values


def _check_tied(values: dict[str, Tensor], *, embedding_name: str, slices: TensorSlices) -> None:
    head = values.pop(HEAD, None)
    if head is None:
        return
    embedding = values.setdefault(embedding_name, head)
    own = slices.get(embedding_name)
    is_same = embedding.shape == head.shape and (
        torch.equal(embedding, head) if own is None else torch.equal(own.of(embedding), own.of(head))
    )
    if not is_same:
        raise WeightsError(f"{HEAD} differs from {embedding_name}, but the model ties them")


def _check_names(expected: set[str], offered: set[str]) -> None:
    for problem, names in (("missing", expected - offered), ("unknown", offered - expected)):
        if names:
            shown = ", ".join(sorted(names)[:MAX_NAMES_SHOWN])
            more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
            raise WeightsError(f"{problem} weights: {shown}{more}; the old weights stay")


def check_tensor(
    name: str,
    *,
    wanted: tuple[int, ...],
    value: Tensor,
    own: TensorSlice | None = None,
    is_proven_finite: bool = False,
) -> None:
    """Check that `value` has this shape and is floating, and that the slice is finite. Raises WeightsError."""
    if (offered := tuple(value.shape)) != wanted:
        raise WeightsError(f"{name} has shape {offered}, expected {wanted}; the old weights stay")
    if not value.is_floating_point():
        raise WeightsError(f"{name} is {value.dtype}, expected a floating type; the old weights stay")
    if not is_proven_finite and not torch.isfinite(value if own is None else own.of(value)).all():
        raise WeightsError(f"{name} has NaN or infinite values; the old weights stay")


def is_adapter(path: Path) -> bool:
    return (path / ADAPTER_CONFIG_NAME).is_file()


def adapted_tensors(
    changes: Mapping[str, LowRank],
    base: BaseWeights,
    *,
    restored: Iterable[str],
    dtype: torch.dtype,
    slices: TensorSlices = MappingProxyType({}),
) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, weight in `dtype`) of each changed layer, then of the `restored` ones as the folder has them.

    Outside of the slices, the values of a weight have no meaning. Raises WeightsError if a sum is not finite.
    """
    for name, change in changes.items():
        own = slices.get(name)
        weight = _spread(merged(base.read(name), change, dtype, own), base.shapes[name], own)
        check_tensor(name, wanted=base.shapes[name], value=weight, own=own)
        yield name, weight
    for name in restored:
        if name not in changes:
            yield (
                name,
                _spread(
                    own_slice(name, base.read(name), slices).to(dtype), base.shapes[name], slices.get(name)
                ),
            )


def merged(base: Tensor, change: LowRank, dtype: torch.dtype, own: TensorSlice | None = None) -> Tensor:
    """Return this slice of base + scale·B·A in `dtype`, computed in float32."""
    up, down = change.up, change.down
    if own is not None:
        base = own.of(base)
        up, down = (own.of(up), down) if own.dim == 0 else (up, own.of(down))
    total = base.to(dtype).float().addmm(up.float(), down.float(), alpha=change.scale)
    return total.to(dtype)


def _spread(value: Tensor, shape: tuple[int, ...], own: TensorSlice | None) -> Tensor:
    """Return a tensor of this shape that has `value` as its slice. The rest is never written, so it takes no memory."""
    if own is None:
        return value
    whole = torch.empty(shape, dtype=value.dtype)
    own.of(whole).copy_(value)
    return whole


def adapter_read(folder: Path, base: BaseWeights) -> dict[str, LowRank]:
    """Return the changes by name of the weight. Raises WeightsError unless all of them fit the model."""
    scale, rank = _read_config(folder / ADAPTER_CONFIG_NAME)
    tensors = read_tensors(folder / ADAPTER_SHARD_NAME)
    names = [name.removesuffix(_DOWN) for name in tensors if name.endswith(_DOWN)]
    if not names or tensors.keys() != {f"{name}{own}" for name in names for own in (_DOWN, _UP)}:
        raise WeightsError(
            f"{folder / ADAPTER_SHARD_NAME} must contain pairs of lora_A and lora_B, and nothing else"
        )
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
    """Return (scale, rank)."""
    try:
        config = json.loads(path.read_text())
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
        scale = alpha / rank
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise WeightsError(f"{path} is not the configuration of an adapter: {error!r}") from error
    for key, plain in _PLAIN.items():
        if (value := config.get(key, plain)) != plain:
            raise WeightsError(f"{path} has {key} {value!r}, which this engine does not support")
    return scale, rank
