"""Checks that a model folder has the layers that a spec names, by the headers of its safetensors files."""

from pathlib import Path

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.files.safetensors_headers import header_read


def lora_targets_check(folder: Path, targets: list[str]) -> None:
    """Refuse a name with which no layer of the model ends. Raises ApplicationError naming the field.

    Routers and routed experts are no layers that an adapter could change.
    """
    matrices = _matrices(folder)
    layers = matrices - _routed(matrices)
    for target in targets:
        if not _ends(target, layers):
            known = sorted({name.rsplit(".", 1)[-1] for name in layers if ".layers." in name})
            reason = (
                "is part of routed experts, which adapters leave as they are"
                if _ends(target, matrices)
                else "is not a linear layer of the model"
            )
            raise field_error(
                "train.lora.target_modules", f"{target!r} {reason}; accepted: {', '.join(known)}"
            )


def _ends(target: str, names: set[str]) -> bool:
    return any(name == target or name.endswith(f".{target}") for name in names)


def _routed(names: set[str]) -> set[str]:
    """Return the experts of a mixture and the routers before them."""
    blocks = {name.partition(".experts.")[0] for name in names if ".experts." in name}
    return {name for name in names if ".experts." in name or name.removesuffix(".gate") in blocks}


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
