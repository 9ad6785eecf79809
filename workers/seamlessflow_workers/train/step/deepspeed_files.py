"""Reads checkpoints of earlier releases, which DeepSpeed wrote, without running any code that they name.

Only as many ranks as wrote them can read them, in the same ZeRO stage; the next checkpoint is of the present format
(`train.state`). The files are pickles, and DeepSpeed's own reader calls whatever a file names. This module takes a path
and returns what DeepSpeed saved: tensors, plain containers and the three classes below. It refuses a file that names
anything else, before the first call.
"""

import re
from pathlib import Path
from typing import Any

import torch

from seamlessflow_workers.train.checkpoint import CheckpointReadError
from seamlessflow_workers.train.state.saving import random_states_restore
from seamlessflow_workers.train.step.process_group import (
    LossScaler,
    TorchCheckpointEngine,
    ZeroStageEnum,
    fragment_address,
)

# Beside those that torch itself allows. None of them runs code when it is made from a file.
_KNOWN_CLASSES = [LossScaler, ZeroStageEnum, fragment_address]
_NAMED = re.compile(r"(?:GLOBAL|type) (\S+)")


def deepspeed_read(engine: Any, folder: Path, tag: str, *, is_partial: bool) -> None:
    """Restore DeepSpeed's engine and the random state from `folder/tag`. Raises CheckpointReadError.

    `is_partial`: the frozen parameters are not in the checkpoint, because they are the model's own.
    """
    num_files = len(list((folder / tag).glob("*_optim_states.pt")))
    num_ranks = torch.distributed.get_world_size()
    if engine.zero_optimization() and num_files not in (0, num_ranks):
        raise CheckpointReadError(
            f"checkpoint {folder} was written by {num_files} ranks in the format of an earlier release, which only as "
            f"many can read; here are {num_ranks}: train one checkpoint further with {num_files} first"
        )
    engine.checkpoint_engine = SafeCheckpointFiles()
    path, client_state = engine.load_checkpoint(str(folder), tag=tag, load_module_strict=not is_partial)
    if path is None:
        raise CheckpointReadError(f"checkpoint {folder} has no files of a trainer")
    random_states_restore(client_state["random_state"])


class SafeCheckpointFiles(TorchCheckpointEngine):
    """Reads DeepSpeed's files safely."""

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
