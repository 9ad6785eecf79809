"""Files as a job records them: by a path, which every host must have, or by a URL of the artifact store."""

from pathlib import Path

from seamlessflow.runtime.artifacts.opening import store_open
from seamlessflow.runtime.artifacts.store import ArtifactMissing, PinnedFiles


def recorded_pin(root_url: str, recorded: str, *, text_only: bool = False) -> PinnedFiles:
    """Return the files on this host. `root_url` is asked for only if `recorded` is a URL.

    Raises ArtifactMissing, StoreError, InvalidRoot.
    """
    if recorded.startswith("/"):
        if not Path(recorded).exists():
            raise ArtifactMissing(f"{recorded} does not exist")
        return PinnedFiles(Path(recorded))
    store = store_open(root_url)
    store_path = store.path_of(recorded)
    if store_path is None:
        raise ArtifactMissing(f"{recorded} is not in the artifact store {store.url}")
    return store.pin(store_path, text_only=text_only)
