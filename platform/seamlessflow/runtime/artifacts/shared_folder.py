"""An artifact store in a folder: on the only host, or on a file system that all hosts mount.

Files are used where they are, so nothing is ever copied to be read. Writers rename whole folders to their final path;
removals rename them aside first. So a name is whole or absent.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from seamlessflow.runtime.artifacts.store import ArtifactMissing, PinnedFiles

ASIDE = ".deleting-"
CHUNK_BYTES = 4 * 1024**2


class SharedFolder:
    is_local = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    @property
    def url(self) -> str:
        return self._folder.as_uri()

    def path_of(self, url: str) -> str | None:
        try:
            parts = urlsplit(url)
        except ValueError:
            return None
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            return None
        try:
            path = Path(unquote(parts.path)).resolve()
        except (ValueError, OSError, RuntimeError):  # NUL, too long or a circle of links: not a valid path
            return None
        is_below = path.is_relative_to(self._folder) and path != self._folder
        return path.relative_to(self._folder).as_posix() if is_below else None

    def url_of(self, store_path: str) -> str:
        return self.workspace(store_path).as_uri()

    def workspace(self, store_path: str) -> Path:
        return self._folder / store_path

    def keep(self, bundle: str, *, expected: Mapping[str, str] | None = None) -> None:
        """Nothing to do: writers rename whole folders into the store, with the digests of what they wrote."""

    def pin(self, store_path: str, *, text_only: bool = False) -> PinnedFiles:
        path = self.workspace(store_path)
        if not path.exists():
            raise ArtifactMissing(f"{path} does not exist")
        return PinnedFiles(path)

    def exists(self, store_path: str) -> bool:
        return self.workspace(store_path).exists()

    def names(self, store_path: str) -> list[str]:
        try:
            found = sorted(entry.name for entry in self.workspace(store_path).iterdir() if entry.is_dir())
        except FileNotFoundError:
            return []
        return [name for name in found if not name.startswith(".")]

    def entries(self) -> list[str]:
        return [entry.name for entry in self._folder.iterdir()] if self._folder.is_dir() else []

    def files(self, bundle: str) -> dict[str, int]:
        folder = self.workspace(bundle)
        sizes = {}
        for path in folder.rglob("*"):
            try:
                if not path.is_dir():
                    sizes[path.relative_to(folder).as_posix()] = path.lstat().st_size
            except FileNotFoundError:  # it is being deleted
                continue
        return sizes

    def read(self, bundle: str, name: str) -> Iterator[bytes]:
        path = self.workspace(bundle) / name
        try:
            with path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
        except FileNotFoundError as error:
            raise ArtifactMissing(f"{path} does not exist") from error

    def copy(self, source: str, target: str, *, replaced: Mapping[str, bytes]) -> None:
        """Link files that have not changed (copies where there are no links): none changes once it has its name."""
        there, here = self.workspace(source), self.workspace(target)
        _tree_link(there, here)
        for name, raw in replaced.items():
            (here / name).unlink()  # the linked one must not change
            (here / name).write_bytes(raw)
            _sync(here / name)
        for folder, _, _ in os.walk(here):
            _sync(Path(folder))
        for above in (here.parent, *here.parent.parents):
            if not above.is_relative_to(self._folder):
                break
            _sync(above)

    def remove(self, store_path: str) -> None:
        path = self.workspace(store_path)
        aside = path.with_name(f"{ASIDE}{path.name}")
        _delete(aside)  # left by an interrupted removal
        if path.exists():
            path.rename(aside)
            _delete(aside)

    def leftovers_remove(self, store_path: str) -> int:
        doomed = list(self.workspace(store_path).glob(".*"))  # hidden names, which are never read
        for path in doomed:
            _delete(path)
        return len(doomed)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _tree_link(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target, copy_function=_link)
    except shutil.Error as error:  # with source, target and message of each file
        if source.exists():
            raise OSError(error.args[0][0][2]) from error
        raise ArtifactMissing(f"{source} was removed meanwhile") from error
    except FileNotFoundError as error:
        raise ArtifactMissing(f"{source} does not exist") from error
    if not source.exists():  # a removal renames it first, so it may have lost files meanwhile
        raise ArtifactMissing(f"{source} was removed meanwhile")


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # no hard links on this file system or kernel: copy instead
        shutil.copy2(source, target)
        _sync(Path(target))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
