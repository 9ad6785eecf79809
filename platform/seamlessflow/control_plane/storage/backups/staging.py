"""Checkpoints of jobs at work, held while a back-up copies: their trainer deletes the older ones as it goes on.

Takes the artifact store and writes a folder of hard links, which take no space and survive the trainer's deletions; a
checkpoint never changes once it has its name. Invariant: everything linked under `batch-<n>` is complete.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

FOLDER = ".back-up"
CHECKPOINT = "batch-"


@contextmanager
def staging(root: Path) -> Iterator[Path]:
    """Yield an empty folder in the store and remove it afterwards. First remove one that a killed back-up left."""
    folder = root / FOLDER
    leftover_remove(root)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def leftover_remove(root: Path) -> None:
    """Remove what a killed back-up left. Call this only while no back-up runs."""
    if (root / FOLDER).exists():
        shutil.rmtree(root / FOLDER, ignore_errors=True)


def checkpoints_link(root: Path, staged: Path, job_ids: Iterable[UUID]) -> dict[UUID, set[int]]:
    """Link the checkpoints; return the linked batches by job."""
    return {job_id: _link_job(root, staged, job_id) for job_id in job_ids}


def _link_job(root: Path, staged: Path, job_id: UUID) -> set[int]:
    linked = set()
    for folder in sorted((root / str(job_id) / "checkpoints").glob(f"{CHECKPOINT}*")):
        target = staged / str(job_id) / "checkpoints" / folder.name
        try:
            if not target.exists():
                shutil.copytree(folder, target, copy_function=_link)
        except (FileNotFoundError, shutil.Error):  # its trainer is deleting it
            shutil.rmtree(target, ignore_errors=True)
            continue
        if folder.exists():  # it still has its name, so the links are complete
            linked.add(int(folder.name.removeprefix(CHECKPOINT)))
        else:
            shutil.rmtree(target)
    return linked


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except PermissionError:  # no hard links on this file system or kernel: copy instead
        shutil.copy2(source, target)
