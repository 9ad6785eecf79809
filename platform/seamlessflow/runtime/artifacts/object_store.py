"""An artifact store of objects, behind fsspec: S3 and what speaks its protocol.

A bundle `<store_path>` is the object `<store_path>/whole.json` (`core.artifacts.index`) and the files that it names
under `<store_path>/<upload>/`. Files are digested while they are sent, and again while they are received. Credentials
come from the environment of the process, where the client library finds them; they are in no URL and in no message.
"""

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, ParamSpec, TypeVar

from seamlessflow.core.artifacts.index import (
    INDEX_NAME,
    BundleIndex,
    FileFacts,
    InvalidIndex,
    index_decode,
    index_digest,
    index_encode,
)
from seamlessflow.core.artifacts.store_paths import bundle_of, path_of_url, url_of_path
from seamlessflow.runtime.artifacts.node_cache import FILES, TEXT, NodeCache
from seamlessflow.runtime.artifacts.store import (
    ArtifactDamaged,
    ArtifactMissing,
    PinnedFiles,
    StoreError,
    facts_differ,
)

CHUNK_BYTES = 16 * 1024**2  # sent or asked for at a time
NUM_STREAMS = 4  # files in transit at a time
TEXT_SUFFIXES = frozenset({".json", ".jinja", ".txt", ".model", ".jsonl"})
LEFTOVER_AFTER = timedelta(minutes=10)  # its writer is gone, so it is not on its way any more
_P = ParamSpec("_P")
_T = TypeVar("_T")


class ObjectStore:
    is_local = False

    def __init__(
        self, url: str, filesystem: Any, cache: NodeCache, *, errors: tuple[type[Exception], ...]
    ) -> None:
        """`errors`: the errors that the file system raises, beside OSError, when it cannot reach the store or is
        refused."""
        self._url = url.rstrip("/")
        self._root = str(filesystem._strip_protocol(self._url))
        self._objects = filesystem
        self._cache = cache
        self._errors: tuple[type[Exception], ...] = (OSError, *errors)

    @property
    def url(self) -> str:
        return self._url

    def path_of(self, url: str) -> str | None:
        return path_of_url(self._url, url)

    def url_of(self, store_path: str) -> str:
        return url_of_path(self._url, store_path)

    def workspace(self, store_path: str) -> Path:
        return self._cache.path(store_path)

    def keep(self, bundle: str, *, expected: Mapping[str, str] | None = None) -> None:
        folder = self.workspace(bundle)
        found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        known = self._index(bundle)
        if known is not None and _contains(known[0], found):
            raw, index = known[1], known[0]  # an earlier process sent it and died before it could say so
        else:
            index = self._send(bundle, found)
            raw = index_encode(index)
        if expected is not None and (wrong := facts_differ(index.files, expected)) is not None:
            raise ArtifactDamaged(
                f"{wrong} of {bundle} differs from the file that was written: its digest is another"
            )
        self._call(self._objects.pipe_file, self._name(bundle, INDEX_NAME), raw)
        self._cache.adopt(bundle, digest=index_digest(raw), num_bytes=index.num_bytes)

    def pin(self, store_path: str, *, text_only: bool = False) -> PinnedFiles:
        bundle, inner = bundle_of(store_path)
        found = self._index(bundle)
        if found is None:
            raise ArtifactMissing(f"{self.url_of(bundle)} does not exist")
        index, raw = found
        wanted = {name: one for name, one in index.files.items() if not text_only or _is_text(name)}
        pinned = self._cache.pin(
            bundle,
            tree=TEXT if text_only else FILES,
            digest=index_digest(raw),
            num_bytes=sum(file.num_bytes for file in wanted.values()),
            fill=lambda target: self._receive(bundle, index.upload, wanted, target),
        )
        pinned.path = pinned.path / inner if inner else pinned.path
        if not pinned.path.exists():
            pinned.release()
            raise ArtifactMissing(f"{self.url_of(store_path)} does not exist")
        return pinned

    def exists(self, store_path: str) -> bool:
        bundle, inner = bundle_of(store_path)
        found = self._index(bundle)
        if found is None or not inner:
            return found is not None
        return any(name == inner or name.startswith(f"{inner}/") for name in found[0].files)

    def names(self, store_path: str) -> list[str]:
        above = f"{self._name(store_path)}/"
        found = (name.removeprefix(above) for name in self._below(store_path))
        split = [PurePosixPath(name).parts for name in found]
        return sorted(names[0] for names in split if len(names) == 2 and names[1] == INDEX_NAME)

    def entries(self) -> list[str]:
        root = f"{self._root}/"
        return sorted({name.removeprefix(root).partition("/")[0] for name in self._below("")})

    def files(self, bundle: str) -> dict[str, int]:
        found = self._index(bundle)
        return {} if found is None else {name: one.num_bytes for name, one in found[0].files.items()}

    def read(self, bundle: str, name: str) -> Iterator[bytes]:
        found = self._index(bundle)
        if found is None or name not in found[0].files:
            raise ArtifactMissing(f"{self.url_of(bundle)} has no {name}")
        yield from self._chunks(self._name(bundle, found[0].upload, name), found[0].files[name], name)

    def copy(self, source: str, target: str, *, replaced: Mapping[str, bytes]) -> None:
        """Copy inside the store: no file passes through this host."""
        found = self._index(source)
        if found is None:
            raise ArtifactMissing(f"{self.url_of(source)} does not exist")
        index, upload = found[0], uuid.uuid4().hex

        def copy_one(name: str) -> None:
            there, here = self._name(source, index.upload, name), self._name(target, upload, name)
            self._call(self._objects.cp_file, there, here)

        _together(copy_one, [name for name in index.files if name not in replaced])
        files = dict(index.files)
        for name, raw in replaced.items():
            self._call(self._objects.pipe_file, self._name(target, upload, name), raw)
            files[name] = FileFacts(num_bytes=len(raw), sha256=hashlib.sha256(raw).hexdigest())
        own = index_encode(BundleIndex(upload=upload, files=files))
        self._call(self._objects.pipe_file, self._name(target, INDEX_NAME), own)

    def remove(self, store_path: str) -> None:
        objects = self._below(store_path)
        indexes = [name for name in objects if PurePosixPath(name).name == INDEX_NAME]
        for doomed in (indexes, [name for name in objects if name not in set(indexes)]):
            if doomed:
                self._call(self._objects.rm, doomed)
        self._cache.forget(store_path)

    def leftovers_remove(self, store_path: str) -> int:
        """Remove uploads that no index names and that nothing was added to for ten minutes."""
        known: dict[str, str] = {}
        doomed = []
        for name, facts in self._below(store_path).items():
            parts = PurePosixPath(name.removeprefix(self._root + "/")).parts
            bundle, rest = bundle_of("/".join(parts))
            upload = PurePosixPath(rest).parts[0] if rest else ""
            if upload in ("", INDEX_NAME) or datetime.now(UTC) - facts["LastModified"] < LEFTOVER_AFTER:
                continue
            if bundle not in known:
                found = self._index(bundle)
                known[bundle] = "" if found is None else found[0].upload
            doomed += [] if known[bundle] == upload else [name]
        if doomed:
            self._call(self._objects.rm, doomed)
        return len(doomed)

    def _send(self, bundle: str, found: Mapping[str, Path]) -> BundleIndex:
        upload = uuid.uuid4().hex

        def send_one(name: str) -> FileFacts:
            return self._call(self._send_file, found[name], self._name(bundle, upload, name))

        names = sorted(found)
        return BundleIndex(upload=upload, files=dict(zip(names, _together(send_one, names), strict=True)))

    def _send_file(self, source: Path, name: str) -> FileFacts:
        digest, num_bytes = hashlib.sha256(), 0
        with source.open("rb") as file, self._objects.open(name, "wb", block_size=CHUNK_BYTES) as sent:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                num_bytes += sent.write(chunk)
        return FileFacts(num_bytes=num_bytes, sha256=digest.hexdigest())

    def _receive(self, bundle: str, upload: str, files: Mapping[str, FileFacts], target: Path) -> None:
        def receive_one(name: str) -> None:
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for chunk in self._chunks(self._name(bundle, upload, name), files[name], name):
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())

        _together(receive_one, sorted(files))

    def _chunks(self, name: str, facts: FileFacts, shown: str) -> Iterator[bytes]:
        """Yield the bytes of an object; raise ArtifactDamaged after them if they are not those that were kept."""
        digest = hashlib.sha256()
        for start in range(0, facts.num_bytes, CHUNK_BYTES):
            end = min(start + CHUNK_BYTES, facts.num_bytes)
            chunk: bytes = self._call(self._objects.cat_file, name, start=start, end=end)
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != facts.sha256:
            raise ArtifactDamaged(f"{shown} in {self._url} is damaged: its digest is not that of its index")

    def _index(self, bundle: str) -> tuple[BundleIndex, bytes] | None:
        try:
            raw: bytes = self._call(self._objects.cat_file, self._name(bundle, INDEX_NAME))
        except ArtifactMissing:
            return None
        try:
            return index_decode(raw), raw
        except InvalidIndex as error:
            raise ArtifactDamaged(f"{self.url_of(bundle)} cannot be read: {error}") from error

    def _below(self, store_path: str) -> dict[str, Any]:
        """Return the objects below a store path, with the store's facts about each."""
        try:
            found: dict[str, Any] = self._call(self._objects.find, self._name(store_path), detail=True)
        except ArtifactMissing:
            return {}
        return found

    def _name(self, *parts: str) -> str:
        return "/".join((self._root, *filter(None, parts)))

    def _call(self, function: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> _T:
        try:
            return function(*arguments, **options)
        except StoreError:
            raise
        except FileNotFoundError as error:
            raise ArtifactMissing(f"an object of {self._url} does not exist") from error
        except self._errors as error:
            raise StoreError(f"the artifact store {self._url} cannot be used: {error}") from error


def _contains(index: BundleIndex, found: Mapping[str, Path]) -> bool:
    """Whether an index has these very files."""
    if {name: one.num_bytes for name, one in index.files.items()} != {
        name: path.stat().st_size for name, path in found.items()
    }:
        return False
    return all(index.files[name].sha256 == _digest(path) for name, path in found.items())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_text(name: str) -> bool:
    return PurePosixPath(name).suffix in TEXT_SUFFIXES


def _together(work: Callable[[str], _T], names: Sequence[str]) -> list[_T]:
    """Do the same for several files at a time; the first failure is raised."""
    with ThreadPoolExecutor(NUM_STREAMS, thread_name_prefix="artifacts") as executor:
        return list(executor.map(work, names))
