"""Files as a job records them: by a path, which every host must have, or by a URL of the artifact store."""

from pathlib import Path

from seamlessflow.runtime.artifacts.opening import store_open
from seamlessflow.runtime.artifacts.store import ArtifactMissing, Held


def recorded_hold(root_url: str, recorded: str, *, text_only: bool = False) -> Held:
    """Return the files on this host. `root_url` is asked for only if `recorded` is a URL.

    Raises ArtifactMissing, StoreError, InvalidRoot.
    """
    if recorded.startswith("/"):
        if not Path(recorded).exists():
            raise ArtifactMissing(f"{recorded} does not exist")
        return Held(Path(recorded))
    store = store_open(root_url)
    place = store.place_of(recorded)
    if place is None:
        raise ArtifactMissing(f"{recorded} is not in the artifact store {store.url}")
    return store.hold(place, text_only=text_only)
