"""Writes and reads DeepSpeed checkpoints with the trainer's progress; each folder is complete or absent.

`<artifact_root>/<job>/checkpoints/batch-<n>/` holds the engine's state and `progress.json`. It is written as
`.saving-<n>`, fsynced and renamed; then `latest.json` is replaced by a rename. So a folder named `batch-<n>` is always
complete. The last two are kept.
"""

import contextlib
import os
import shutil
from pathlib import Path

import msgspec

from seamlessflow_workers.train.step_engine import StepEngine
from seamlessflow_workers.weights.durable_files import fsync_folder, write_durably, write_failure

_FORMAT_VERSION = 1
NUM_KEPT = 2
_TAG = "state"
_SAVING_PREFIX = ".saving-"
_DELETING_PREFIX = ".deleting-"
_FOLDER_PREFIX = "batch-"
PROGRESS_NAME = "progress.json"
_LATEST_NAME = "latest.json"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the weights in memory are in the sequence of batches and versions."""

    format_version: int = _FORMAT_VERSION
    batch_number: int = 0  # last batch applied
    version: int = 0  # policy version that it made; 0 is the initial model
    optimizer_step: int = 0
    metrics: dict[str, float] = {}  # of that step, for a publication that a crash prevented


class LatestCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    path: str  # name of the folder beside latest.json
    progress: Progress


class CheckpointWriteError(RuntimeError):
    """The checkpoint could not be written; nothing incomplete was left behind."""


class CheckpointReadError(RuntimeError):
    """A checkpoint exists but cannot be loaded."""


def checkpoint_save(checkpoints: Path, engine: StepEngine, progress: Progress) -> Path:
    """Save and return the folder. Raises CheckpointWriteError."""
    temporary = checkpoints / f"{_SAVING_PREFIX}{progress.batch_number}"
    target = checkpoints / f"{_FOLDER_PREFIX}{progress.batch_number}"
    try:
        _clear_leftovers(checkpoints)
        temporary.mkdir(parents=True)
        engine.state_save(temporary, _TAG)
        (temporary / PROGRESS_NAME).write_bytes(msgspec.json.encode(progress))
        _fsync_tree(temporary)
        if target.exists():
            _discard(target)  # from an earlier attempt at the same batch, never announced
        temporary.rename(target)
        _write_latest(checkpoints, LatestCheckpoint(path=target.name, progress=progress))
        fsync_folder(checkpoints)
        for number in _saved_batches(checkpoints)[:-NUM_KEPT]:
            _discard(checkpoints / f"{_FOLDER_PREFIX}{number}")
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        subject = f"checkpoint of batch {progress.batch_number}"
        raise CheckpointWriteError(write_failure(subject, checkpoints, error)) from error
    except RuntimeError as error:  # torch reports a failed write without an errno
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointWriteError(
            f"cannot write checkpoint of batch {progress.batch_number} in {checkpoints} "
            f"({shutil.disk_usage(checkpoints).free} bytes free): {str(error).splitlines()[0]}; "
            "free space or change ARTIFACT_ROOT"
        ) from error
    return target


def progress_read(raw: bytes, checkpoint: str) -> Progress:
    """Return the progress that a checkpoint holds. Raises CheckpointReadError."""
    try:
        progress = msgspec.json.decode(raw, type=Progress)
    except msgspec.DecodeError as error:
        raise CheckpointReadError(f"checkpoint {checkpoint} cannot be read: {error}") from error
    if progress.format_version != _FORMAT_VERSION:
        raise CheckpointReadError(
            f"checkpoint {checkpoint} has format_version {progress.format_version}, expected {_FORMAT_VERSION}"
        )
    return progress


def checkpoint_load(folder: Path, engine: StepEngine) -> None:
    engine.state_load(folder, _TAG)


def _saved_batches(checkpoints: Path) -> list[int]:
    return sorted(
        int(entry.name.removeprefix(_FOLDER_PREFIX)) for entry in checkpoints.glob(f"{_FOLDER_PREFIX}*")
    )


def _clear_leftovers(checkpoints: Path) -> None:
    """Delete the leftovers of a trainer that was killed while saving or deleting."""
    for prefix in (_SAVING_PREFIX, _DELETING_PREFIX):
        for entry in checkpoints.glob(f"{prefix}*"):
            shutil.rmtree(entry)


def _discard(folder: Path) -> None:
    """Delete a checkpoint; rename it first, so that a folder with its name is always complete."""
    with contextlib.suppress(FileNotFoundError):  # a host's cache makes room by removing what the store has
        shutil.rmtree(folder.rename(folder.with_name(f"{_DELETING_PREFIX}{folder.name}")))


def _write_latest(checkpoints: Path, latest: LatestCheckpoint) -> None:
    aside = checkpoints / f".{_LATEST_NAME}"
    aside.unlink(missing_ok=True)
    write_durably(aside, [msgspec.json.encode(latest)])
    aside.replace(checkpoints / _LATEST_NAME)


def _fsync_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            with (Path(parent) / name).open("rb") as file:
                os.fsync(file.fileno())
        fsync_folder(Path(parent))
