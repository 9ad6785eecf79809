"""Checkpoints of jobs at work, held while a back-up copies: their trainer deletes the older ones as it goes on.

Enters: the artifact store at one moment. Leaves: a folder of hard links, which cost no bytes and outlive what their
trainer deletes; a checkpoint is never changed once it bears its name. Invariant: what is linked under `batch-<n>` is
whole.
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
    """An empty folder in the store, removed afterwards; one that a killed back-up left is removed first."""
    folder = root / FOLDER
    leftover_remove(root)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def leftover_remove(root: Path) -> None:
    """What a killed back-up left: only while none is taken."""
    if (root / FOLDER).exists():
        shutil.rmtree(root / FOLDER, ignore_errors=True)


def checkpoints_link(root: Path, staged: Path, job_ids: Iterable[UUID]) -> dict[UUID, set[int]]:
    """The batches whose checkpoints were linked, by job."""
    return {job_id: _link_job(root, staged, job_id) for job_id in job_ids}


def _link_job(root: Path, staged: Path, job_id: UUID) -> set[int]:
    linked = set()
    for folder in sorted((root / str(job_id) / "checkpoints").glob(f"{CHECKPOINT}*")):
        target = staged / str(job_id) / "checkpoints" / folder.name
        try:
            if not target.exists():
                shutil.copytree(folder, target, copy_function=_link)
        except (FileNotFoundError, shutil.Error):  # its trainer deletes it just now
            shutil.rmtree(target, ignore_errors=True)
            continue
        if folder.exists():  # still by its name: what was linked is all of it
            linked.add(int(folder.name.removeprefix(CHECKPOINT)))
        else:
            shutil.rmtree(target)
    return linked


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except PermissionError:  # a file system, or a rule of the kernel, without links: it costs a copy
        shutil.copy2(source, target)
