"""The linear layers of a model folder, from the headers of its safetensors files: no framework, no weights read."""

import json
from pathlib import Path

from seamlessflow.control_plane.common.errors import field_error

MAX_HEADER_BYTES = 100 * 1024**2  # what safetensors itself accepts
_FIELD = "train.lora.target_modules"


def lora_targets_check(folder: Path, targets: list[str]) -> None:
    """Refuse names that end no layer of the model. Raises ApplicationError naming the field."""
    layers = _matrices(folder)
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in layers):
            known = sorted({name.rsplit(".", 1)[-1] for name in layers if ".layers." in name})
            raise field_error(
                _FIELD, f"{target!r} is no linear layer of the model; it has {', '.join(known)}"
            )


def _matrices(folder: Path) -> set[str]:
    """Names of modules whose weight has two dimensions. Raises ApplicationError for a file that is none of its kind."""
    names = set()
    for file in sorted(folder.glob("*.safetensors")):
        for name, entry in _header(file).items():
            if name.endswith(".weight") and isinstance(entry, dict) and len(entry.get("shape", ())) == 2:
                names.add(name.removesuffix(".weight"))
    return names


def _header(file: Path) -> dict[str, object]:
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length)) if length <= MAX_HEADER_BYTES else None
    except (OSError, ValueError) as error:
        raise field_error("model.source", f"{file.name} cannot be read: {error}") from error
    if not isinstance(header, dict):
        raise field_error("model.source", f"{file.name} is no safetensors file")
    return header
