"""Reads the files of a DeepSpeed checkpoint without running any code that they name.

The files are pickles, and DeepSpeed's own reader calls whatever a file names. This module takes a path and returns what
DeepSpeed saved: tensors, plain containers and the three classes below. It refuses a file that names anything else,
before the first call.
"""

import re
from pathlib import Path
from typing import Any

import torch

from seamlessflow_workers.train.checkpoint import CheckpointReadError
from seamlessflow_workers.train.step.process_group import (
    LossScaler,
    TorchCheckpointEngine,
    ZeroStageEnum,
    fragment_address,
)

# Beside those that torch itself allows. None of them runs code when it is made from a file.
_KNOWN_CLASSES = [LossScaler, ZeroStageEnum, fragment_address]
_NAMED = re.compile(r"(?:GLOBAL|type) (\S+)")


class SafeCheckpointFiles(TorchCheckpointEngine):
    """Reads DeepSpeed's files safely, and writes them as DeepSpeed does."""

    def load(self, path: str, map_location: Any = None) -> Any:
        """Load a file. Raises CheckpointReadError."""
        try:
            with torch.serialization.safe_globals(_KNOWN_CLASSES):
                return torch.load(path, map_location=map_location, weights_only=True)
        except Exception as error:  # a damaged pickle fails in as many ways as there are bytes
            raise CheckpointReadError(_refusal(Path(path), error)) from error


def _refusal(path: Path, error: Exception) -> str:
    if named := _NAMED.search(str(error)):
        return (
            f"checkpoint file {path} names {named.group(1)}, which no trainer saves, so it was not made by one; "
            "none of its code was run: delete its folder to continue from the previous checkpoint"
        )
    reason = next(iter(str(error).splitlines()), "")
    return f"checkpoint file {path} cannot be read: {type(error).__name__} {reason}".rstrip()
