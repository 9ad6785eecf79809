"""The tensors of a model's folder under the names of the model's own parameters, one after the other.

It takes a folder with safetensors files and a model whose parameters have no values yet. Files are mapped, so a tensor
costs no anonymous memory unless transformers stores the parameter as several tensors (experts, fused projections); then
the tensors of one parameter are put together, and only of one at a time. Names are those of transformers' own loader,
which this follows: renamings first, at most one conversion, then the prefix of the base model.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
)

from seamlessflow_workers.train.step_engine import ModelLoadError, ModelRefused

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


def has_mappable_files(folder: Path) -> bool:
    """Return whether the folder has safetensors files, which can be read tensor by tensor."""
    return (folder / _INDEX).is_file() or (folder / _SINGLE).is_file()


def model_tensors(folder: Path, model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield (name in the model, values), in the files' number format; tensors that the model lacks are left out.

    Values may be mapped from a file: do not write to them. Raises ModelLoadError.
    """
    files = _MappedFiles(folder)
    own = model.state_dict()
    mapping = get_model_conversion_mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    by_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    assembled: dict[str, WeightConverter] = {}
    prefix = model.base_model_prefix
    for stored in sorted(files.names, key=dot_natural_key):
        name, pattern = rename_source_key(stored, renamings, converters, prefix, own)
        if name not in own and stored in own:
            name, pattern = rename_source_key(stored, [], [], prefix, own)
        if name not in own:
            continue
        if pattern is None:
            yield name, files.tensor(stored)
        else:
            converter = assembled.setdefault(name, deepcopy(by_pattern[pattern]))
            converter.add_tensor(name, stored, pattern, partial(files.tensor, stored))  # type: ignore[arg-type]
    for name, converter in assembled.items():
        yield from _converted(name, converter, model)


def _converted(name: str, converter: WeightConverter, model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    try:
        found = converter.convert(name, model=model, config=model.config)
    except (ValueError, RuntimeError, KeyError, IndexError) as error:
        raise ModelRefused(f"the stored tensors of {name} do not fit together: {error}") from error
    for target, values in found.items():
        yield target, values[0] if isinstance(values, list) else values


class _MappedFiles:
    """The safetensors files of a folder; each is mapped when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, safe_open] = {}
        self._file_of = self._index()

    @property
    def names(self) -> Iterable[str]:
        return self._file_of

    def tensor(self, name: str) -> Tensor:
        values: Tensor = self._open(self._file_of[name]).get_tensor(name)
        return values

    def _index(self) -> Mapping[str, str]:
        index = self._folder / _INDEX
        if not index.is_file():
            return dict.fromkeys(self._open(_SINGLE).keys(), _SINGLE)
        try:
            found: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
        except (ValueError, KeyError) as error:
            raise ModelRefused(f"{index} is not an index of safetensors files: {error!r}") from error
        return found

    def _open(self, file: str) -> safe_open:
        if file not in self._files:
            path = self._folder / file
            try:
                self._files[file] = safe_open(path, framework="pt")
            except (OSError, SafetensorError) as error:
                raise ModelLoadError(f"{path} cannot be read: {error}") from error
        return self._files[file]
