"""Checkpoints of jobs at work, kept while a back-up copies: their trainer deletes the older ones as it goes on.

Takes the artifact store and makes copies in it that survive the trainer's deletions (hard links in a folder, which take
no space); a checkpoint never changes once it has its name. Invariant: everything staged under `batch-<n>` is complete.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID

from seamlessflow.core.artifacts.store_paths import checkpoint_number, checkpoint_path, checkpoints_path
from seamlessflow.runtime.artifacts.store import ArtifactMissing, ArtifactStore

STAGED = ".back-up"


@contextmanager
def staging(store: ArtifactStore) -> Iterator[None]:
    """Remove the links of the block afterwards. First remove those that a killed back-up left."""
    leftover_remove(store)
    try:
        yield
    finally:
        leftover_remove(store)


def leftover_remove(store: ArtifactStore) -> None:
    """Remove what a killed back-up left. Call this only while no back-up runs."""
    store.remove(STAGED)


def staged_path(store_path: str) -> str:
    return f"{STAGED}/{store_path}"


def checkpoints_stage(store: ArtifactStore, job_ids: Iterable[UUID]) -> dict[UUID, set[int]]:
    """Stage the checkpoints; return the staged batches by job."""
    return {job_id: set(_stage_job(store, job_id)) for job_id in job_ids}


def _stage_job(store: ArtifactStore, job_id: UUID) -> Iterator[int]:
    staged = set(store.names(staged_path(checkpoints_path(job_id))))
    for name in store.names(checkpoints_path(job_id)):
        number = checkpoint_number(name)
        if number is None:
            continue
        store_path = checkpoint_path(job_id, number)
        try:
            if name not in staged:
                store.copy(store_path, staged_path(store_path), replaced={})
        except ArtifactMissing:  # its trainer is deleting it
            store.remove(staged_path(store_path))
            continue
        yield number
