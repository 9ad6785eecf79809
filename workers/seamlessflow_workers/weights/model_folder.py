"""The tensors in the safetensors files of a model folder, from their headers alone; no weight is read, nor a
framework."""

from pathlib import Path

from safetensors import safe_open


def folder_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the tensors; empty for a folder without safetensors files."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="np") as shard:
            for name in shard.keys():  # noqa: SIM118 - safe_open is no mapping
                shapes[name] = tuple(shard.get_slice(name).get_shape())
    return shapes
