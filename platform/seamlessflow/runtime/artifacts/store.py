"""What every artifact store offers, wherever it keeps its files.

Processes write and read ordinary local files: a bundle is written in `workspace`, made part of the store by `keep`, and
read in the folder that `hold` returns. In a folder that hosts share all three are the same place and nothing is copied.
In an object store `keep` uploads and `hold` downloads to this host's cache. Invariant: a bundle is whole or absent, and
no byte is handed out that differs from what was kept.
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
    """What was read differs from what was kept."""


@dataclass(slots=True)
class Held:
    """A bundle's files on this host, which stay there until `release`, or until nobody refers to this any more."""

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
    """A place is a relative name (`core.artifacts.places`). Every method may raise StoreError."""

    @property
    def url(self) -> str: ...

    @property
    def is_local(self) -> bool:
        """Whether files are used where they are, in a folder that all hosts see."""
        ...

    def place_of(self, url: str) -> str | None:
        """Return the place of a URL in this store; None for anything else, whatever links or `..` it holds."""
        ...

    def url_of(self, place: str) -> str: ...

    def workspace(self, place: str) -> Path:
        """Return where this host writes a place. The folder need not exist."""
        ...

    def keep(self, bundle: str, *, expected: Mapping[str, str] | None = None) -> None:
        """Make what lies in the bundle's workspace part of the store, in place of an earlier one.

        `expected`: the SHA-256 of files as their writer computed them. Raises ArtifactDamaged if one differs.
        """
        ...

    def hold(self, place: str, *, text_only: bool = False) -> Held:
        """Return a place's files on this host. Raises ArtifactMissing, ArtifactDamaged.

        `text_only`: without weights, for readers of configuration and tokenizer.
        """
        ...

    def exists(self, place: str) -> bool: ...

    def names(self, place: str) -> list[str]:
        """Return the names of the whole bundles directly below a place."""
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

    def remove(self, place: str) -> None:
        """Remove a bundle, or all bundles below a place. Repeatable; nobody sees half of a bundle meanwhile."""
        ...

    def leftovers_remove(self, place: str) -> int:
        """Remove what killed writers left below a place that nobody writes any more. Returns how much was found."""
        ...


def facts_differ(facts: Mapping[str, FileFacts], expected: Mapping[str, str]) -> str | None:
    """Return the first file whose digest is not the expected one; None if all are right."""
    wrong = (name for name, digest in expected.items() if name not in facts or facts[name].sha256 != digest)
    return next(wrong, None)
