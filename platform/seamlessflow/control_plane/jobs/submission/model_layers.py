"""Checks that a model folder has the layers that a spec names, by the headers of its safetensors files."""

from collections.abc import Iterable
from pathlib import Path

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.core.model_tensors import adaptable_layers, is_of_routed_expert
from seamlessflow.runtime.safetensors_headers import header_read


def lora_targets_check(folder: Path, targets: list[str]) -> None:
    """Refuse a name with which no layer that can be adapted ends. Raises ApplicationError naming the field."""
    matrices = _matrices(folder)
    is_mixture = any(map(is_of_routed_expert, matrices))
    layers = adaptable_layers(matrices, is_mixture=is_mixture)
    for target in targets:
        if _ends(target, layers):
            continue
        known = sorted({name.rsplit(".", 1)[-1] for name in layers if ".layers." in name})
        reason = (
            "is part of experts or of layers like them, and an adapter of such a model changes attention only"
            if _ends(target, matrices)
            else "is not a linear layer of the model"
        )
        raise field_error("train.lora.target_modules", f"{target!r} {reason}; accepted: {', '.join(known)}")


def _ends(target: str, names: Iterable[str]) -> bool:
    return any(name == target or name.endswith(f".{target}") for name in names)


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
