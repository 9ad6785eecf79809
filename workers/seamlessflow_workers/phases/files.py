"""Files of the artifact store that a child reads: brought to this machine before it needs them, kept while it lives.

It takes URLs of the store, `file://` URLs and paths; it returns local paths. Invariant: what a child was given stays on
the machine until something else is pinned for the same purpose, and nothing is handed out that is not whole.
"""

import asyncio
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from seamlessflow.runtime.artifacts.opening import InvalidRoot, store_open
from seamlessflow.runtime.artifacts.store import ArtifactMissing, PinnedFiles, StoreError

APPEAR_S = 60.0  # how long files that were announced may take to appear, or a store to come back
_LOOK_EVERY_S = 0.01  # into a folder
_ASK_EVERY_S = 1.0  # a store of objects


class FilesMissing(RuntimeError):
    """The files did not come; the message says why in one sentence for people."""


class MachineFiles:
    def __init__(self, artifact_root: str) -> None:
        self._root = artifact_root
        self._pinned: dict[str, PinnedFiles] = {}  # by purpose

    async def pin(self, purpose: str, url: str) -> Path:
        """Return the files on this machine once they are there. Raises FilesMissing."""
        deadline_s = time.monotonic() + APPEAR_S
        while True:
            try:
                pinned = await self._pin(url)
            except InvalidRoot as error:
                raise FilesMissing(str(error)) from error
            except StoreError as error:
                if time.monotonic() > deadline_s:
                    raise FilesMissing(str(error)) from error
                await asyncio.sleep(_ASK_EVERY_S if is_remote(url) else _LOOK_EVERY_S)
            else:
                self._let_go(purpose)
                self._pinned[purpose] = pinned
                return pinned.path

    def release(self) -> None:
        """Let go of everything."""
        for purpose in list(self._pinned):
            self._let_go(purpose)

    async def _pin(self, url: str) -> PinnedFiles:
        if not is_remote(url):
            return _local(url)
        fetching = asyncio.get_running_loop().run_in_executor(None, _fetch, self._root, url)
        try:
            return await asyncio.shield(fetching)
        except asyncio.CancelledError:  # the thread goes on, and its files are of use to the next one
            fetching.add_done_callback(_release_unwanted)
            raise

    def _let_go(self, purpose: str) -> None:
        if (pinned := self._pinned.pop(purpose, None)) is not None:
            pinned.release()


def is_remote(url: str) -> bool:
    """Whether files must be brought to this machine before they can be read."""
    return urlsplit(url).scheme not in ("", "file")


def local_path(url: str) -> Path:
    """Return the path of a `file://` URL or a plain path. Raises FilesMissing for any other scheme."""
    split = urlsplit(url)
    if split.scheme not in ("", "file") or split.netloc not in ("", "localhost"):
        raise FilesMissing(f"files at {url!r} cannot be read here; file:// URLs and paths are accepted")
    return Path(unquote(split.path) if split.scheme else url)


def _local(url: str) -> PinnedFiles:
    path = local_path(url)
    if not path.exists():
        raise ArtifactMissing(f"{path} does not exist")
    return PinnedFiles(path)


def _fetch(root: str, url: str) -> PinnedFiles:
    store = store_open(root)
    store_path = store.path_of(url)
    if store_path is None:
        raise InvalidRoot(f"{url!r} is not in the artifact store {store.url}")
    return store.pin(store_path)


def _release_unwanted(fetching: "asyncio.Future[PinnedFiles]") -> None:
    if not fetching.cancelled() and fetching.exception() is None:
        fetching.result().release()
