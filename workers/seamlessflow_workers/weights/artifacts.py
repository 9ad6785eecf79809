"""A job's versions and checkpoints in the artifact store, as its trainer writes and finds them.

Both are written as local folders (`versions/<n>`, `checkpoints/batch-<n>`) and then kept: in a shared folder they are
there already, in an object store they are sent. Invariants: a version that is announced is whole; so is whatever has
the name of a checkpoint, which may be announced while it is written.
"""

from pathlib import Path
from uuid import UUID

from seamlessflow.core.artifacts.store_paths import (
    checkpoint_number,
    checkpoint_path,
    checkpoints_path,
    job_path,
    version_path,
    versions_path,
)
from seamlessflow.runtime.artifacts.opening import store_open
from seamlessflow.runtime.artifacts.store import ArtifactMissing, ArtifactStore, PinnedFiles
from seamlessflow_workers.weights.manifest import manifest_read


class JobArtifacts:
    def __init__(self, artifact_root: str, job_id: UUID) -> None:
        """Raises InvalidRoot, StoreError."""
        self._store: ArtifactStore = store_open(artifact_root)
        self._job_id = job_id

    @property
    def versions(self) -> Path:
        """The folder where this machine writes versions."""
        return self._store.workspace(versions_path(self._job_id))

    @property
    def checkpoints(self) -> Path:
        """The folder where this machine writes checkpoints."""
        return self._store.workspace(checkpoints_path(self._job_id))

    @property
    def shared_folder(self) -> Path | None:
        """The job's folder if it is one that all machines see."""
        return self._store.workspace(job_path(self._job_id)) if self._store.is_local else None

    def version_keep(self, version: int) -> str:
        """Add a written version to the store, and return its URL. Raises StoreError."""
        store_path, expected = version_path(self._job_id, version), None
        if not self._store.is_local:
            manifest = manifest_read(self._store.workspace(store_path))
            expected = {name: entry.sha256 for name, entry in manifest.files.items()}
        self._store.keep(store_path, expected=expected)
        return self._store.url_of(store_path)

    def checkpoint_keep(self, batch_number: int, *, num_kept: int) -> str:
        """Add a written checkpoint to the store, and return its URL; only the newest stay. Raises StoreError."""
        self._store.keep(checkpoint_path(self._job_id, batch_number))
        for number in self._checkpoint_numbers()[:-num_kept]:
            self._store.remove(checkpoint_path(self._job_id, number))
        return self.checkpoint_url(batch_number)

    def checkpoint_url(self, batch_number: int) -> str:
        return self._store.url_of(checkpoint_path(self._job_id, batch_number))

    def checkpoint_newest(self, name: str) -> tuple[int, bytes] | None:
        """Return the batch of the newest checkpoint and the bytes of one of its files; None if there is none."""
        for number in reversed(self._checkpoint_numbers()):
            try:
                return number, b"".join(self._store.read(checkpoint_path(self._job_id, number), name))
            except ArtifactMissing:  # another trainer has just replaced it by a newer one
                continue
        return None

    def checkpoint_pin(self, batch_number: int) -> PinnedFiles:
        """Return a checkpoint's folder on this machine. Raises StoreError."""
        return self._store.pin(checkpoint_path(self._job_id, batch_number))

    def _checkpoint_numbers(self) -> list[int]:
        numbers = map(checkpoint_number, self._store.names(checkpoints_path(self._job_id)))
        return sorted(number for number in numbers if number is not None)
