"""What every artifact store offers, wherever it keeps its files.

Processes write and read ordinary local files: a bundle is written in `workspace`, added to the store by `keep`, and
read in the folder that `pin` returns. In a folder that all hosts mount, all three are the same folder and nothing is
copied. In an object store `keep` uploads and `pin` downloads to this host's cache. Invariant: a bundle is whole or
absent, and no byte is handed out that differs from the kept one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from seamlessflow.core.artifacts.index import FileFacts


class StoreError(OSError):
    """The store cannot be used: it is away, refuses, or its cache is full. The message says which in one sentence."""


class ArtifactMissing(StoreError, FileNotFoundError):
    """The store has no such bundle."""


class ArtifactDamaged(StoreError):
    """The bytes that were read differ from those that were kept."""


@dataclass(slots=True)
class PinnedFiles:
    """A bundle's files on this host, which stay there until `release`, or until the last reference to this is gone."""

    path: Path  # the bundle's folder, or the file or folder in it that was asked for
    _release: Callable[[], None] | None = None

    def release(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()

    def __del__(self) -> None:
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class ArtifactStore(Protocol):
    """A store path is a relative name (`core.artifacts.store_paths`). Every method may raise StoreError."""

    @property
    def url(self) -> str: ...

    @property
    def is_local(self) -> bool:
        """Whether files are used where they are, in a folder that all hosts see."""
        ...

    def path_of(self, url: str) -> str | None:
        """Return the store path of a URL in this store; None for anything else, whatever links or `..` it has."""
        ...

    def url_of(self, store_path: str) -> str: ...

    def workspace(self, store_path: str) -> Path:
        """Return the folder in which this host writes a store path. The folder need not exist."""
        ...

    def keep(self, bundle: str, *, expected: Mapping[str, str] | None = None) -> None:
        """Add the bundle's workspace to the store; it replaces an earlier one.

        `expected`: the SHA-256 of files as their writer computed them. Raises ArtifactDamaged if one differs.
        """
        ...

    def pin(self, store_path: str, *, text_only: bool = False) -> PinnedFiles:
        """Return a store path's files on this host. Raises ArtifactMissing, ArtifactDamaged.

        `text_only`: without weights, for readers of configuration and tokenizer.
        """
        ...

    def exists(self, store_path: str) -> bool: ...

    def names(self, store_path: str) -> list[str]:
        """Return the names of the whole bundles directly below a store path."""
        ...

    def entries(self) -> list[str]:
        """Return the names of everything at the root, whole or not."""
        ...

    def files(self, bundle: str) -> dict[str, int]:
        """Return the bytes of each file by its name in the bundle; empty if there is no such bundle."""
        ...

    def read(self, bundle: str, name: str) -> Iterator[bytes]:
        """Yield the bytes of one file."""
        ...

    def copy(self, source: str, target: str, *, replaced: Mapping[str, bytes]) -> None:
        """Make a bundle of another's files, with new bytes for some. Raises ArtifactMissing if that one goes away."""
        ...

    def remove(self, store_path: str) -> None:
        """Remove a bundle, or all bundles below a store path. Repeatable; no reader sees half of a bundle meanwhile."""
        ...

    def leftovers_remove(self, store_path: str) -> int:
        """Remove the files that killed writers left below a store path without a writer. Returns how many were
        found."""
        ...


def facts_differ(facts: Mapping[str, FileFacts], expected: Mapping[str, str]) -> str | None:
    """Return the first file whose digest is not the expected one; None if all are right."""
    wrong = (name for name, digest in expected.items() if name not in facts or facts[name].sha256 != digest)
    return next(wrong, None)
