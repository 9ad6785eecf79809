"""The faults of the files of a model folder, without reading weights or importing a framework.

Takes a folder; yields sentences that begin with the file. Submission asks before a job is queued, and engines and
trainers ask before they load, because a file may have been replaced in the meantime. Invariant: a fault that is
reported here would fail on every machine that has these files; a file that cannot be read raises OSError, which may be
the machine's.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seamlessflow.core.model_config import config_problems
from seamlessflow.core.model_weights import Shape, weights_problems
from seamlessflow.runtime.json_files import CONFIG_BOUNDS, InvalidJsonFile, JsonBounds, json_file_read
from seamlessflow.runtime.safetensors_headers import HEADER_BOUNDS, InvalidHeader, header_read

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_INDEX_BOUNDS = JsonBounds(HEADER_BOUNDS.max_bytes, HEADER_BOUNDS.max_values)
_NUM_NAMED = 3


def model_folder_problems(folder: Path, *, has_weights: bool = True) -> Iterator[str]:
    """Yield the faults. Without `has_weights` only the config is looked at. Raises OSError."""
    config: Mapping[str, Any] = {}
    found = []
    try:
        config = _mapping(json_file_read(folder / CONFIG, CONFIG_BOUNDS))
        found = [f"{CONFIG}: {problem}" for problem in config_problems(config)]
    except InvalidJsonFile as error:
        found = [f"{CONFIG} cannot be read: {error}"]
    yield from found
    if has_weights:
        yield from _weights_problems(folder, None if found else config)


def _weights_problems(folder: Path, config: Mapping[str, Any] | None) -> Iterator[str]:
    """`config`: None if it says nothing that the weights could be compared with."""
    shapes: dict[str, dict[str, Shape]] = {}
    found = []
    for file in sorted(folder.glob("*.safetensors")):
        try:
            shapes[file.name] = {tensor.name: tensor.shape for tensor in header_read(file)}
        except InvalidHeader as error:
            found.append(f"{file.name} cannot be read as safetensors: {error}")
    found = found or list(_index_problems(folder, shapes))
    yield from found
    if not found and config is not None:
        own = shapes.get(SINGLE) or {name: shape for own in shapes.values() for name, shape in own.items()}
        yield from (f"{CONFIG}: {problem}" for problem in weights_problems(config, own))


def _index_problems(folder: Path, shapes: Mapping[str, Mapping[str, Shape]]) -> Iterator[str]:
    """Compare the index of a model in several files with these. With a file of the usual name, no index is read."""
    if SINGLE in shapes:
        return
    if not (folder / INDEX).is_file():
        names = ", ".join(list(shapes)[:_NUM_NAMED]) or "none"
        yield f"{SINGLE} and {INDEX} are missing, and transformers reads no other safetensors files; found: {names}"
        return
    try:
        file_of = _mapping(_mapping(json_file_read(folder / INDEX, _INDEX_BOUNDS)).get("weight_map"))
    except InvalidJsonFile as error:
        yield f"{INDEX} has no weight_map that can be read: {error}"
        return
    if not file_of:
        yield f"{INDEX} has a weight_map that names no file"
    lacking = [str(file) for file in dict.fromkeys(map(str, file_of.values())) if file not in shapes]
    if lacking:
        yield f"{INDEX} names {', '.join(lacking[:_NUM_NAMED])}, which the folder lacks"
        return
    astray = [name for name, file in file_of.items() if name not in shapes[file]]
    if astray:
        yield f"{INDEX} says that {astray[0]} is in {file_of[astray[0]]}, which does not have it"


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidJsonFile("it is not a JSON object")
    return value
