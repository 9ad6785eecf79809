"""Writes answers that are files to disk as they arrive. A broken one raises ApiError."""

import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx

from seamlessflow.client.errors import ApiError, refusal_read


@contextmanager
def folder_made(folder: Path) -> Iterator[Path]:
    """Yield a folder to fill; it becomes `folder` only if all goes well. Raises FileExistsError."""
    if folder.exists():
        raise FileExistsError(f"{folder} exists already")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as aside:
        made = Path(aside) / "folder"
        made.mkdir()
        yield made
        made.rename(folder)


def tar_receive(http: httpx.Client, path: str, folder: Path, *, params: Mapping[str, str]) -> None:
    """Download a tar completely, then unpack it into `folder`. Raises ApiError."""
    with tempfile.TemporaryFile() as file:
        file_receive(http, path, file, params=params)
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                archive.extractall(folder, filter="data")
        except tarfile.TarError as error:
            raise _broken(http, error) from error


def file_receive(
    http: httpx.Client, path: str, file: IO[bytes], *, params: Mapping[str, str] | None = None
) -> None:
    """Write an answer to `file`. Raises ApiError."""
    try:
        with http.stream("GET", path, params=params) as response:
            if not response.is_success:
                response.read()
                raise refusal_read(response)
            for chunk in response.iter_bytes():
                file.write(chunk)
    except httpx.TransportError as error:
        raise _broken(http, error) from error


def _broken(http: httpx.Client, error: Exception) -> ApiError:
    return ApiError(f"the connection to {http.base_url} failed ({error})")
