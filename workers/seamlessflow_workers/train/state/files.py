"""Writes each rank's state to a file of its own, and reads any slice back from the files of all ranks.

`rank-<n>-of-<m>.safetensors` has the tensors `<kind>/<parameter>` (flat; kind: `param`, `exp_avg`, `exp_avg_sq`) and,
in the first rank's, `random/<device>`; its metadata says where each slice begins in its parameter. The files are data
only, and need no particular number of ranks to be read: M ranks continue what N ranks wrote, in any ZeRO stage,
with equal values to the bit.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from seamlessflow_workers.train.checkpoint import CheckpointReadError
from seamlessflow_workers.train.state.owned import MASTER, OwnedSlice
from seamlessflow_workers.weights.durable_files import file_write
from seamlessflow_workers.weights.safetensors_layout import safetensors_head
from seamlessflow_workers.weights.tensors import TensorLayout

_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.uint8: "U8"}
_RANDOM = "random"
_SLICES = "slices"


class SliceEntry(msgspec.Struct, frozen=True):
    """Where a flat tensor of a file is in its parameter, and how many steps its moments contain."""

    shape: list[int]
    start: int
    step: float | None


@dataclass(frozen=True, slots=True)
class _StoredSlice:
    slice: SliceEntry
    file: Any  # open
    kinds: list[str]


_decode_slices = msgspec.json.Decoder(dict[str, SliceEntry]).decode


def rank_file(folder: Path, *, rank: int, num_ranks: int) -> Path:
    return folder / f"rank-{rank:05d}-of-{num_ranks:05d}.safetensors"


def slices_to_write(owned: Sequence[OwnedSlice], *, rank: int, num_ranks: int) -> list[OwnedSlice]:
    """Return the slices that this rank writes: those that it alone owns, and in turn one of those that all ranks
    own."""
    return [one for number, one in enumerate(owned) if not one.is_replicated or number % num_ranks == rank]


class RankState:
    """The contents of one rank's file: views of the state, or copies of them that do not change any more."""

    def __init__(self, slices: Mapping[str, SliceEntry], tensors: Mapping[str, Tensor]) -> None:
        self._slices = slices
        self._tensors = tensors

    @classmethod
    def of(cls, owned: Sequence[OwnedSlice], random_states: Mapping[str, Tensor]) -> Self:
        tensors = {f"{kind}/{one.name}": view for one in owned for kind, view in one.values().items()}
        tensors |= {f"{_RANDOM}/{device}": state for device, state in random_states.items()}
        slices = {one.name: SliceEntry(list(one.shape), one.start, one.step) for one in owned}
        return cls(slices, tensors)

    def copied(self) -> "RankState":
        """Return the same contents in memory of the host that nothing else uses."""
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self._tensors.items()}
        return RankState(self._slices, copies)

    @property
    def num_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors.values())

    def write(self, path: Path) -> None:
        """Write and fsync a new file; beside views in an accelerator, one tensor at a time is copied."""
        layouts = {
            name: TensorLayout(
                dtype=_DTYPES[tensor.dtype],
                shape=tuple(tensor.shape),
                num_bytes=tensor.numel() * tensor.element_size(),
            )
            for name, tensor in self._tensors.items()
        }
        metadata = {_SLICES: msgspec.json.encode(self._slices).decode()}
        head = safetensors_head(layouts, metadata)
        file_write(path, self._chunks(head))

    def _chunks(self, head: bytes) -> Iterator[bytes | memoryview]:
        yield head
        for tensor in self._tensors.values():
            yield tensor.detach().to("cpu").contiguous().view(torch.uint8).numpy().data


class StateFiles:
    """The files of all ranks, open for reading; only the requested slices are read."""

    def __init__(self, folder: Path) -> None:
        """Raises CheckpointReadError, also if the file of a rank is missing."""
        self._folder = folder
        self._open = ExitStack()
        self._stored: dict[str, list[_StoredSlice]] = {}
        self._random: dict[str, Tensor] = {}
        paths = sorted(folder.glob("rank-*.safetensors"))
        try:
            for path in paths:
                self._add(path)
        except BaseException:
            self._open.close()
            raise
        num_ranks = int(paths[0].stem.rpartition("-")[2]) if paths else 0
        if len(paths) != (num_ranks or 1):
            self._open.close()
            found = f"the files of {len(paths)} of {num_ranks} ranks" if paths else "no files of this format"
            raise CheckpointReadError(
                f"checkpoint {folder} has {found}; delete its folder to continue from the previous checkpoint"
            )

    @property
    def names(self) -> set[str]:
        return set(self._stored)

    def random_states(self) -> dict[str, Tensor]:
        return self._random

    def restore(self, owned: OwnedSlice) -> None:
        """Overwrite a slice with its values. Raises CheckpointReadError."""
        stored = self._stored.get(owned.name, [])
        shapes = {tuple(one.slice.shape) for one in stored}
        if shapes != {owned.shape}:
            found = ", ".join(map(str, shapes)) or "nothing"
            raise CheckpointReadError(
                f"checkpoint {self._folder} has {found} for {owned.name}, which has the shape {owned.shape} here"
            )
        kinds = [kind for kind in stored[0].kinds if kind != MASTER]
        owned.restore(lambda kind: self._read(owned, kind), step=stored[0].slice.step, moments=kinds)

    def _add(self, path: Path) -> None:
        try:
            file = self._open.enter_context(safe_open(path, framework="pt"))
            slices = _decode_slices((file.metadata() or {})[_SLICES])
            kinds: dict[str, list[str]] = {}
            for key in file.keys():  # noqa: SIM118 - safe_open is no mapping
                kind, _, name = key.partition("/")
                if kind == _RANDOM:
                    self._random[name] = file.get_tensor(key)
                else:
                    kinds.setdefault(name, []).append(kind)
            for name, one in slices.items():
                self._stored.setdefault(name, []).append(_StoredSlice(one, file, kinds[name]))
        except (SafetensorError, OSError, KeyError, msgspec.DecodeError) as error:
            raise CheckpointReadError(f"checkpoint file {path} cannot be read: {error}") from error

    def _read(self, owned: OwnedSlice, kind: str) -> Tensor:
        """Return the elements of a slice [num_elements], put together from all files that have some."""
        result = torch.empty(owned.num_elements)
        done = owned.start  # elements before are read; ranks may have written the same ones
        for one in sorted(self._stored[owned.name], key=lambda stored: stored.slice.start):
            start = one.slice.start
            elements = one.file.get_slice(f"{kind}/{owned.name}")
            end = min(owned.end, start + elements.get_shape()[0])
            if start <= done < end:
                result[done - owned.start : end - owned.start] = elements[done - start : end - start]
                done = end
        if done != owned.end:
            raise CheckpointReadError(
                f"checkpoint {self._folder} has {kind}/{owned.name} up to element {done}, not up to {owned.end}"
            )
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
