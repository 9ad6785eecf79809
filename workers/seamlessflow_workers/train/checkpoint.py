"""Writes and reads checkpoints with the trainer's progress; each folder is complete or absent.

`<artifact_root>/<job>/checkpoints/batch-<n>/` has the engine's state and `progress.json`. It is written as
`.saving-<n>`, fsynced and renamed; then `latest.json` is replaced by a rename. So a folder named `batch-<n>` is always
complete. The last two are kept. The state is written while the trainer goes on: `checkpoint_begin` returns as soon as
the state may change, and nothing has the name of a checkpoint before `checkpoint_finish`.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from seamlessflow.core.artifacts.store_paths import CHECKPOINT_PREFIX, NUM_KEPT_CHECKPOINTS
from seamlessflow_workers.train.step_engine import StepEngine
from seamlessflow_workers.weights.durable_files import fsync_folder, write_durably, write_failure

_FORMAT_VERSION = 2
_TAG = "state"
_SAVING_PREFIX = ".saving-"
_DELETING_PREFIX = ".deleting-"
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


@dataclass(frozen=True, slots=True)
class Saving:
    """A checkpoint that is being written; `target` will be its folder."""

    progress: Progress
    temporary: Path
    target: Path


def checkpoint_begin(checkpoints: Path, engine: StepEngine, progress: Progress) -> Saving:
    """Begin to save the state of this moment. Finish the previous one first. Raises CheckpointWriteError."""
    saving = Saving(
        progress,
        temporary=checkpoints / f"{_SAVING_PREFIX}{progress.batch_number}",
        target=checkpoints / f"{CHECKPOINT_PREFIX}{progress.batch_number}",
    )
    with _explained(saving):
        _clear_leftovers(checkpoints)
        saving.temporary.mkdir(parents=True)
        engine.state_save(saving.temporary, _TAG)
    return saving


def checkpoint_finish(saving: Saving, engine: StepEngine, *, waits: bool = True) -> bool:
    """Give the checkpoint its name once it is written, and delete older ones; return whether that is done.

    Without `waits` it returns at once. Raises CheckpointWriteError.
    """
    checkpoints, temporary, target = saving.target.parent, saving.temporary, saving.target
    with _explained(saving):
        if not engine.state_saved(waits=waits):
            return False
        (temporary / PROGRESS_NAME).write_bytes(msgspec.json.encode(saving.progress))
        _fsync_tree(temporary)
        if target.exists():
            _discard(target)  # from an earlier attempt at the same batch, never announced
        temporary.rename(target)
        _write_latest(checkpoints, LatestCheckpoint(path=target.name, progress=saving.progress))
        fsync_folder(checkpoints)
        for number in _saved_batches(checkpoints)[:-NUM_KEPT_CHECKPOINTS]:
            _discard(checkpoints / f"{CHECKPOINT_PREFIX}{number}")
    return True


@contextmanager
def _explained(saving: Saving) -> Iterator[None]:
    """Turn a failure to write into a CheckpointWriteError, and leave nothing incomplete behind."""
    checkpoints, number = saving.target.parent, saving.progress.batch_number
    try:
        yield
    except OSError as error:
        shutil.rmtree(saving.temporary, ignore_errors=True)
        raise CheckpointWriteError(
            write_failure(f"checkpoint of batch {number}", checkpoints, error)
        ) from error


def progress_read(raw: bytes, checkpoint: str) -> Progress:
    """Return the progress in a checkpoint. Raises CheckpointReadError."""
    try:
        progress = msgspec.json.decode(raw, type=Progress)
    except msgspec.DecodeError as error:
        raise CheckpointReadError(f"checkpoint {checkpoint} cannot be read: {error}") from error
    if progress.format_version != _FORMAT_VERSION:
        raise CheckpointReadError(
            f"checkpoint {checkpoint} has format_version {progress.format_version}; accepted: {_FORMAT_VERSION}"
        )
    return progress


def checkpoint_load(folder: Path, engine: StepEngine) -> None:
    engine.state_load(folder, _TAG)


def _saved_batches(checkpoints: Path) -> list[int]:
    return sorted(
        int(entry.name.removeprefix(CHECKPOINT_PREFIX)) for entry in checkpoints.glob(f"{CHECKPOINT_PREFIX}*")
    )


def _clear_leftovers(checkpoints: Path) -> None:
    """Delete the leftovers of a trainer that was killed while saving or deleting."""
    for prefix in (_SAVING_PREFIX, _DELETING_PREFIX):
        for entry in checkpoints.glob(f"{prefix}*"):
            shutil.rmtree(entry)


def _discard(folder: Path) -> None:
    """Delete a checkpoint; rename it first, so that a folder with its name is always complete."""
    with contextlib.suppress(FileNotFoundError):  # a host's cache evicts files that the store has
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
