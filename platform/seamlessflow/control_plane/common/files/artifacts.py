"""The artifact store of this installation, and files of jobs that may be in it."""

from django.conf import settings

from seamlessflow.runtime.artifacts import recorded
from seamlessflow.runtime.artifacts.opening import store_open
from seamlessflow.runtime.artifacts.store import ArtifactStore, PinnedFiles


def artifact_store() -> ArtifactStore:
    """Return the store. Raises StoreError if it cannot be used."""
    return store_open(settings.ARTIFACT_ROOT_URL)


def recorded_as(store_path: str) -> str:
    """Return how a job records a store path: every host must be able to find the files by it."""
    store = artifact_store()
    return str(store.workspace(store_path)) if store.is_local else store.url_of(store_path)


def recorded_pin(words: str, *, text_only: bool = False) -> PinnedFiles:
    """Return on this host what a job records. Raises ArtifactMissing, StoreError."""
    return recorded.recorded_pin(settings.ARTIFACT_ROOT_URL, words, text_only=text_only)
