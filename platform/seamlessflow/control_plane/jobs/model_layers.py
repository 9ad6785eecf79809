"""Checks that a model folder has the layers that a spec names, by the headers of its safetensors files."""

from pathlib import Path

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.files.safetensors_headers import header_read


def lora_targets_check(folder: Path, targets: list[str]) -> None:
    """Refuse a name with which no layer of the model ends. Raises ApplicationError naming the field."""
    layers = _matrices(folder)
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in layers):
            known = sorted({name.rsplit(".", 1)[-1] for name in layers if ".layers." in name})
            raise field_error(
                "train.lora.target_modules",
                f"{target!r} is not a linear layer of the model; accepted: {', '.join(known)}",
            )


def _matrices(folder: Path) -> set[str]:
    """Return the names of modules whose weight has two dimensions."""
    names = set()
    for file in sorted(folder.glob("*.safetensors")):
        try:
            tensors = header_read(file)
        except (OSError, ValueError) as error:
            raise field_error("model.source", f"{file.name} cannot be read: {error}") from error
        names |= {
            t.name.removesuffix(".weight")
            for t in tensors
            if t.name.endswith(".weight") and len(t.shape) == 2
        }
    return names
