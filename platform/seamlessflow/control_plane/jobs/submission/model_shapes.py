"""Reads the shape of a model from its folder, without reading its weights.

Returns None for a model whose config lacks the usual numbers: nothing is known of the memory that it needs, so no
machine is ruled out because of it.
"""

from pathlib import Path

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.core.sizing.model_shape import InvalidModelConfig, ModelShape, model_shape
from seamlessflow.runtime.json_files import CONFIG_BOUNDS, InvalidJsonFile, json_file_read
from seamlessflow.runtime.safetensors_headers import header_read


def model_shape_read(folder: Path) -> ModelShape | None:
    """Return the shape of a model folder. Raises ApplicationError if a file of it cannot be read."""
    field = "model.source"
    try:
        config = json_file_read(folder / "config.json", CONFIG_BOUNDS)
    except (OSError, InvalidJsonFile) as error:
        raise field_error(field, f"config.json cannot be read: {error}") from error
    tensors = []
    for file in sorted(folder.glob("*.safetensors")):
        try:
            tensors += [(tensor.name, tensor.shape) for tensor in header_read(file)]
        except (OSError, ValueError) as error:
            raise field_error(field, f"{file.name} cannot be read: {error}") from error
    try:
        return model_shape(config, tensors) if isinstance(config, dict) else None
    except InvalidModelConfig:
        return None
