"""The folder of a submitted model, whose configuration and tensor headers are read once, whatever asks for them.

Takes the path of a resolved model. Invariant: no weight is read, and every fault names `model.source`.
"""

from functools import cached_property
from pathlib import Path
from typing import Any

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.runtime.json_files import CONFIG_BOUNDS, InvalidJsonFile, json_file_read
from seamlessflow.runtime.safetensors_headers import StoredTensor, header_read

FIELD = "model.source"


class ModelFolder:
    """Its properties raise ApplicationError if their file cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    @cached_property
    def document(self) -> dict[str, Any]:
        """The whole of `config.json`."""
        try:
            config = json_file_read(self.path / "config.json", CONFIG_BOUNDS)
        except (OSError, InvalidJsonFile) as error:
            raise field_error(FIELD, f"{self.name}/config.json cannot be read: {error}") from error
        if not isinstance(config, dict):
            raise field_error(FIELD, f"{self.name}/config.json is not a JSON object")
        return config

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the language model in `config.json`."""
        text = self.document.get("text_config")
        return text if isinstance(text, dict) else self.document

    @cached_property
    def tensors(self) -> list[StoredTensor]:
        """The headers of all safetensors files."""
        found: list[StoredTensor] = []
        for file in sorted(self.path.glob("*.safetensors")):
            try:
                found += header_read(file)
            except (OSError, ValueError) as error:
                raise field_error(FIELD, f"{file.name} cannot be read: {error}") from error
        return found
