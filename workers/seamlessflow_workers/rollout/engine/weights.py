"""Whole weights from safetensors, all or nothing.

`read_tensors` reads a file or a folder of shards; `check_all` proves that every tensor of the model is there with its
shape, finite and floating, and nothing else is. With tied embeddings `lm_head.weight` may come along (senders always
include it) and must then equal the embedding.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from seamlessflow_workers.weights.arrival import WeightsError

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
MAX_NAMES_SHOWN = 3


def check_all(
    values: dict[str, Tensor], shapes: Mapping[str, tuple[int, ...]], *, tied_embedding: str | None
) -> None:
    """Raises `WeightsError` unless they are exactly those of `shapes`; takes a tied head out."""
    if tied_embedding is not None:
        _check_tied(values, embedding_name=tied_embedding)
    _check_names(set(shapes), set(values))
    for name, shape in shapes.items():
        check_tensor(name, wanted=shape, value=values[name])


def safetensors_files(path: Path) -> list[Path]:
    """The file, or those of a folder. Raises WeightsError without any."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not path.exists():
        raise WeightsError(f"{path} does not exist")
    if not files:
        raise WeightsError(f"{path} holds no .safetensors file")
    return files


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file or folder by name. Raises WeightsError."""
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


def _check_tied(values: dict[str, Tensor], *, embedding_name: str) -> None:
    head = values.pop(HEAD, None)
    if head is None:
        return
    embedding = values.setdefault(embedding_name, head)
    if embedding.shape != head.shape or not torch.equal(embedding, head):
        raise WeightsError(f"{HEAD} differs from {embedding_name}, but the model ties them")


def _check_names(expected: set[str], offered: set[str]) -> None:
    for problem, names in (("missing", expected - offered), ("unknown", offered - expected)):
        if names:
            shown = ", ".join(sorted(names)[:MAX_NAMES_SHOWN])
            more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
            raise WeightsError(f"{problem} weights: {shown}{more}; the old weights stay")


def check_tensor(name: str, *, wanted: tuple[int, ...], value: Tensor) -> None:
    """Raises WeightsError unless `value` has this shape and is floating and finite."""
    if (offered := tuple(value.shape)) != wanted:
        raise WeightsError(f"{name} has shape {offered}, expected {wanted}; the old weights stay")
    if not value.is_floating_point():
        raise WeightsError(f"{name} is {value.dtype}, expected a floating type; the old weights stay")
    if not torch.isfinite(value).all():
        raise WeightsError(f"{name} holds NaN or infinite values; the old weights stay")
