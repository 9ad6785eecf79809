"""What an engine must overwrite to be the policy that a path holds: whole weights, or an adapter over its model folder.

It takes a safetensors file, a folder of shards, or a folder in peft's format, and returns tensors by name that are
proven to fit. It knows in which tensors the engine differs from its model folder, so that an adapter always lies over
the folder's own weights, whatever was put in place before. Both engines stage their updates through this module.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from seamlessflow_workers.rollout.engine.adapter import (
    BaseWeights,
    adapted_tensors,
    adapter_read,
    is_adapter,
)
from seamlessflow_workers.rollout.engine.weights import check_all, read_tensors


@dataclass(frozen=True, slots=True)
class StagedUpdate:
    values: dict[str, Tensor]
    differing: frozenset[str]  # from the model folder, once `values` are in place


class WeightUpdates:
    def __init__(
        self,
        folder: Path,
        shapes: Mapping[str, tuple[int, ...]],
        *,
        tied_embedding: str | None,
        dtype: torch.dtype,
        takes_whole_modules: bool = False,
    ) -> None:
        """`shapes`: every tensor of the engine by its name in a checkpoint, without the head where it is tied.

        `takes_whole_modules`: the engine holds the weights of a module in one (queries, keys and values), so those
        beside a changed one must come along.
        """
        self._folder = folder
        self._shapes = shapes
        self._tied_embedding = tied_embedding
        self._dtype = dtype
        self._takes_whole_modules = takes_whole_modules
        self._differing: frozenset[str] = frozenset()

    def stage(self, path: Path, tensors: Mapping[str, Tensor] | None = None) -> StagedUpdate:
        """Read and check; nothing is changed. `tensors`: what the path holds, had already. Raises WeightsError."""
        if is_adapter(path):
            # Sums are computed where the folder's own weights are read.
            on_host = None if tensors is None else {name: tensor.cpu() for name, tensor in tensors.items()}
            changes = adapter_read(path, self._base, on_host)
            restored = self._differing - changes.keys()
            if self._takes_whole_modules:
                restored |= self._beside(restored | changes.keys())
            adapted = adapted_tensors(changes, self._base, restored=sorted(restored), dtype=self._dtype)
            return StagedUpdate(dict(adapted), frozenset(changes))
        values = read_tensors(path) if tensors is None else dict(tensors)
        check_all(values, self._shapes, tied_embedding=self._tied_embedding)
        is_own = path == self._folder
        return StagedUpdate(values, frozenset() if is_own else frozenset(values))

    def applied(self, update: StagedUpdate) -> None:
        self._differing = update.differing

    @cached_property
    def _base(self) -> BaseWeights:
        return BaseWeights(self._folder)

    def _beside(self, names: frozenset[str]) -> frozenset[str]:
        """The tensors of the modules that hold these: with `….mlp.up_proj.weight` all of `….mlp`."""
        modules = {name.rsplit(".", 2)[0] for name in names}
        return frozenset(name for name in self._shapes if name.rsplit(".", 2)[0] in modules)
