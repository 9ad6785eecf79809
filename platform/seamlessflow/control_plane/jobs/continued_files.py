"""Gives a new job the files of an older one to continue from: a checkpoint, and the weights that it holds.

Takes two folders of the artifact store. The files are hard links (copies where there are none), because neither changes
once it has its name: so they take no space, and nothing that deletes the older job's folders can take them away.
Invariant: what is returned is complete and durable, or OSError is raised.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

CHECKPOINT_BATCH = 0  # of the new job: no batch of its own is in it
VERSION = 1  # of the new job: the weights with which it begins
_MANIFEST, _PROGRESS = "manifest.json", "progress.json"


def checkpoints_find(job: Path) -> Iterator[tuple[Path, int]]:
    """Yield the checkpoints of a job, the newest first, each with the version that it holds."""
    folders = [
        one for one in (job / "checkpoints").glob("batch-*") if one.name.removeprefix("batch-").isdigit()
    ]
    for folder in sorted(folders, key=lambda one: -int(one.name.removeprefix("batch-"))):
        try:
            progress = json.loads((folder / _PROGRESS).read_bytes())
        except FileNotFoundError:  # it is being deleted
            continue
        yield folder, int(progress["version"])


def checkpoint_take(source: Path, job: Path) -> Path:
    """Link a checkpoint as one of the new job before its first batch, and return it.

    The optimizer's step goes on; batches and versions are counted anew.
    """
    target = job / "checkpoints" / f"batch-{CHECKPOINT_BATCH}"
    _tree_link(source, target)
    progress = json.loads((source / _PROGRESS).read_bytes())
    own = {**progress, "batch_number": CHECKPOINT_BATCH, "version": VERSION, "metrics": {}}
    _replace(target / _PROGRESS, json.dumps(own).encode())
    _folders_sync(target, job)
    return target


def version_take(source: Path, job: Path, *, job_id: str) -> tuple[Path, str]:
    """Link the files of a version as the new job's first one; return it with the digest of its manifest."""
    target = job / "versions" / str(VERSION)
    _tree_link(source, target)
    manifest = json.loads((source / _MANIFEST).read_bytes())
    own = {**manifest, "job_id": job_id, "version": VERSION, "parent_version": 0}
    raw = json.dumps(own, indent=1, sort_keys=True).encode()
    _replace(target / _MANIFEST, raw)
    _folders_sync(target, job)
    return target, hashlib.sha256(raw).hexdigest()


def _tree_link(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target, copy_function=_link)
    except shutil.Error as error:  # with source, target and message of each file
        if source.exists():
            raise OSError(error.args[0][0][2]) from error
        raise FileNotFoundError(source) from error
    if not source.exists():  # a deletion renames it first, so it may have lost files meanwhile
        raise FileNotFoundError(source)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # no hard links on this file system or kernel: copy instead
        shutil.copy2(source, target)
        _sync(Path(target))


def _replace(path: Path, raw: bytes) -> None:
    """Write a file of the new job's own; the linked one must not change."""
    path.unlink()
    path.write_bytes(raw)
    _sync(path)


def _folders_sync(target: Path, job: Path) -> None:
    for name, _, _ in os.walk(target):
        _sync(Path(name))
    for folder in (target.parent, job, job.parent):
        _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
