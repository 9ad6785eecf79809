"""This host's copies of bundles from an object store, shared by all its processes and bounded in bytes.

Layout below the cache's folder: `files/<store_path>` and `text/<store_path>` are the copies (the second kind without
weights), `entries/<key>.json` says what each copy is and when it was last used (its time of change), `locks/<key>` is
locked shared by those who use a copy and exclusively by the one who makes or removes it, `arriving/<key>` is a copy
that is not whole yet. Invariants: a copy has its name only once it is whole and proven, and an entry only then says so;
the entries' bytes, with those that are arriving, never exceed the bound; nothing in use is removed. The kernel releases
the locks of a killed process, and its files under `arriving` are removed by the next one.
"""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from seamlessflow.runtime.artifacts.store import PinnedFiles, StoreError

FILES, TEXT = "files", "text"
# A folder without an entry is a bundle that its writer has not kept yet, unless that writer was killed.
ORPHAN_AFTER_S = 24 * 3600.0
FRACTION_OF_DISK = 0.5  # the bound by default


class CacheFull(StoreError):
    """Everything in the cache is in use, or a bundle is larger than the whole cache."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    tree: str
    store_path: str = msgspec.field(name="place")
    digest: str  # of the bundle's index
    num_bytes: int
    is_whole: bool  # False: space that is reserved for a copy on its way


@dataclass(frozen=True, slots=True)
class _Known:
    key: str
    entry: _Entry
    used_at: float


def default_max_bytes(folder: Path) -> int:
    """Return half of the folder's disk."""
    while not folder.exists():
        folder = folder.parent
    return int(shutil.disk_usage(folder).total * FRACTION_OF_DISK)


class NodeCache:
    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        for name in (FILES, TEXT, "entries", "locks", "arriving"):
            (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._leftovers_remove()

    def path(self, store_path: str, *, tree: str = FILES) -> Path:
        return self.folder / tree / store_path

    def pin(
        self, store_path: str, *, digest: str, num_bytes: int, fill: Callable[[Path], None], tree: str = FILES
    ) -> PinnedFiles:
        """Return the copy of a bundle, which `fill` writes into an empty folder if this host has none.

        Of several processes that want the same copy one makes it, and the others wait. Raises CacheFull, and whatever
        `fill` raises; then there is no copy.
        """
        key = _key(tree, store_path)
        while True:
            lock = self._lock(key, fcntl.LOCK_SH)
            assert lock is not None
            if self._is_copy(key, digest):
                os.utime(self._entry_path(key))
                return PinnedFiles(self.path(store_path, tree=tree), partial(os.close, lock))
            os.close(lock)
            with self._exclusive(key):
                if not self._is_copy(key, digest):
                    entry = _Entry(
                        tree=tree, store_path=store_path, digest=digest, num_bytes=num_bytes, is_whole=False
                    )
                    self._make(key, entry, fill)

    def adopt(self, store_path: str, *, digest: str, num_bytes: int) -> None:
        """Take the files that this host has written at a store path as its copy; evict others for them if possible."""
        key = _key(FILES, store_path)
        with self._exclusive(key), self._space_locked():
            entry = _Entry(
                tree=FILES, store_path=store_path, digest=digest, num_bytes=num_bytes, is_whole=True
            )
            self._evict(num_bytes, sparing=key)
            self._write(key, entry)

    def forget(self, store_path: str) -> None:
        """Remove the copies of a store path, and of all below it, that are not in use."""
        for known in self._known():
            if known.entry.store_path == store_path or known.entry.store_path.startswith(f"{store_path}/"):
                self._remove(known.key, known.entry)

    def num_bytes(self) -> int:
        return sum(known.entry.num_bytes for known in self._known())

    def _make(self, key: str, entry: _Entry, fill: Callable[[Path], None]) -> None:
        """Make a copy. The caller has its lock, so whatever arrives under this key is a leftover."""
        arriving, target = self.folder / "arriving" / key, self.path(entry.store_path, tree=entry.tree)
        with self._space_locked():
            self._evict(entry.num_bytes, sparing=key, is_needed=True)
            self._write(key, entry)
        try:
            shutil.rmtree(arriving, ignore_errors=True)
            arriving.mkdir(parents=True)
            fill(arriving)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():  # of other contents, or of a writer that was killed before it kept them
                shutil.rmtree(target)
            arriving.rename(target)
        except BaseException:
            shutil.rmtree(arriving, ignore_errors=True)
            self._entry_path(key).unlink(missing_ok=True)
            raise
        self._write(key, msgspec.structs.replace(entry, is_whole=True))

    def _is_copy(self, key: str, digest: str) -> bool:
        entry = self._read(key)
        return (
            entry is not None
            and entry.is_whole
            and entry.digest == digest
            and self.path(entry.store_path, tree=entry.tree).is_dir()
        )

    def _evict(self, num_bytes: int, *, sparing: str, is_needed: bool = False) -> None:
        """Remove the copies that were used longest ago until there is space. The caller has the lock of the space."""
        known = sorted((one for one in self._known() if one.key != sparing), key=lambda one: one.used_at)
        total = num_bytes + sum(one.entry.num_bytes for one in known)
        for one in known:
            if total <= self.max_bytes:
                return
            if self._remove(one.key, one.entry):
                total -= one.entry.num_bytes
        if total > self.max_bytes and is_needed:
            raise CacheFull(
                f"the cache in {self.folder} has no space for {num_bytes} bytes: {total - num_bytes} of its "
                f"{self.max_bytes} bytes are in use; raise SEAMLESSFLOW_CACHE_BYTES"
            )

    def _remove(self, key: str, entry: _Entry) -> bool:
        """Remove a copy unless it is in use."""
        lock = self._lock(key, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            return False
        try:
            self._entry_path(key).unlink(missing_ok=True)
            shutil.rmtree(self.path(entry.store_path, tree=entry.tree), ignore_errors=True)
            shutil.rmtree(self.folder / "arriving" / key, ignore_errors=True)
            (self.folder / "locks" / key).unlink(missing_ok=True)
        finally:
            os.close(lock)
        return True

    def _known(self) -> Iterator[_Known]:
        for path in (self.folder / "entries").glob("*.json"):
            try:
                used_at = path.stat().st_mtime
            except FileNotFoundError:  # it is being removed
                continue
            if (entry := self._read(path.stem)) is not None:
                yield _Known(path.stem, entry, used_at)

    def _read(self, key: str) -> _Entry | None:
        try:
            return msgspec.json.decode(self._entry_path(key).read_bytes(), type=_Entry)
        except FileNotFoundError:
            return None

    def _write(self, key: str, entry: _Entry) -> None:
        path = self._entry_path(key)
        aside = path.with_suffix(".writing")  # only the holder of the lock writes it
        aside.write_bytes(msgspec.json.encode(entry))
        aside.replace(path)

    def _entry_path(self, key: str) -> Path:
        return self.folder / "entries" / f"{key}.json"

    @contextmanager
    def _exclusive(self, key: str) -> Iterator[None]:
        lock = self._lock(key, fcntl.LOCK_EX)
        assert lock is not None
        try:
            yield
        finally:
            os.close(lock)

    @contextmanager
    def _space_locked(self) -> Iterator[None]:
        """Let one process at a time count the bytes and claim some."""
        with self._exclusive("room"):
            yield

    def _lock(self, key: str, kind: int) -> int | None:
        """Return a locked descriptor; None if another process has it and `kind` does not wait."""
        path = self.folder / "locks" / key
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, kind)
            except BlockingIOError:
                os.close(descriptor)
                return None
            if _is_at(path, descriptor):
                return descriptor
            os.close(descriptor)  # it was removed with its copy while we waited

    def _leftovers_remove(self) -> None:
        """Remove what killed processes left: copies on their way, and bundles that were never kept."""
        for arriving in (self.folder / "arriving").iterdir():
            lock = self._lock(arriving.name, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is not None:
                shutil.rmtree(arriving, ignore_errors=True)
                entry = self._read(arriving.name)
                if entry is not None and not entry.is_whole:
                    self._entry_path(arriving.name).unlink(missing_ok=True)
                os.close(lock)
        kept = {known.entry.store_path for known in self._known()}
        for pattern in ("*/versions/*", "*/checkpoints/*", "uploads/*", "*/trajectories"):
            for folder in self.path("").glob(pattern):
                if (
                    _age_s(folder) > ORPHAN_AFTER_S
                    and folder.relative_to(self.path("")).as_posix() not in kept
                ):
                    shutil.rmtree(folder, ignore_errors=True)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:  # another process has just removed it
        return 0.0


def _key(tree: str, store_path: str) -> str:
    return f"{tree}-{hashlib.sha256(store_path.encode()).hexdigest()[:32]}"


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one at this path."""
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False
