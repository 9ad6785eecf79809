"""Gives a new job the files of an older one to continue from: a checkpoint, and the weights that it holds.

Takes and returns bundles of the artifact store, which copies inside itself: by hard links in a folder, so that the
copies take no space. Nothing that deletes the older job's files can take them away. Invariant: a returned file is
complete and durable, or OSError is raised.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from seamlessflow.core.artifacts.store_paths import (
    checkpoint_number,
    checkpoint_path,
    checkpoints_path,
    version_path,
)
from seamlessflow.runtime.artifacts.store import ArtifactMissing, ArtifactStore

CHECKPOINT_BATCH = 0  # of the new job: no batch of its own is in it
VERSION = 1  # of the new job: the weights with which it begins
_MANIFEST, _PROGRESS = "manifest.json", "progress.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    store_path: str  # in the artifact store
    version: int  # of the weights in it


def checkpoints_find(store: ArtifactStore, job_id: UUID) -> Iterator[Checkpoint]:
    """Yield the checkpoints of a job, the newest first."""
    numbers = map(checkpoint_number, store.names(checkpoints_path(job_id)))
    for number in sorted((number for number in numbers if number is not None), reverse=True):
        store_path = checkpoint_path(job_id, number)
        try:
            progress = _read(store, store_path, _PROGRESS)
        except ArtifactMissing:  # it is being deleted
            continue
        yield Checkpoint(store_path, int(progress["version"]))


def checkpoint_take(store: ArtifactStore, source: str, job_id: UUID) -> str:
    """Copy a checkpoint as one of the new job before its first batch, and return its place.

    The optimizer's step goes on; batches and versions are counted anew.
    """
    target = checkpoint_path(job_id, CHECKPOINT_BATCH)
    progress = _read(store, source, _PROGRESS)
    own = {**progress, "batch_number": CHECKPOINT_BATCH, "version": VERSION, "metrics": {}}
    store.copy(source, target, replaced={_PROGRESS: json.dumps(own).encode()})
    return target


def version_take(store: ArtifactStore, source: str, job_id: UUID) -> tuple[str, str]:
    """Copy the files of a version as the new job's first one; return its place and the digest of its manifest."""
    target = version_path(job_id, VERSION)
    manifest = _read(store, source, _MANIFEST)
    own = {**manifest, "job_id": str(job_id), "version": VERSION, "parent_version": 0}
    raw = json.dumps(own, indent=1, sort_keys=True).encode()
    store.copy(source, target, replaced={_MANIFEST: raw})
    return target, hashlib.sha256(raw).hexdigest()


def _read(store: ArtifactStore, store_path: str, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(b"".join(store.read(store_path, name)))
    return content
