"""Receives the file of a multipart body: straight to disk, hashed on the way, bounded."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler

from seamlessflow.control_plane.common.errors import ApplicationError, field_error
from seamlessflow.control_plane.uploads.services.incoming import entry_lock


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A complete temporary file; its owner renames or deletes it."""

    name: str
    path: Path
    num_bytes: int
    sha256: str


class IncomingFileHandler(FileUploadHandler):
    """Receives the field `file`. `received` is set once the file is on disk; `discard` removes it unless kept."""

    def __init__(self, *, folder: Path, max_bytes: int) -> None:
        super().__init__()
        self._folder = folder
        self._max_bytes = max_bytes
        self._digest = hashlib.sha256()
        self._num_bytes = 0
        self._path: Path | None = None
        self.received: ReceivedFile | None = None

    def new_file(self, *args: Any, **options: Any) -> None:
        super().new_file(*args, **options)
        if self._path is not None:
            raise field_error("file", "send only one file per request")
        if self.field_name != "file":
            raise field_error(str(self.field_name), "is not a known field; accepted: file")
        descriptor, path = tempfile.mkstemp(dir=self._folder, prefix="upload-")
        self._path = Path(path)
        self._lock = entry_lock(self._path)
        self._file = os.fdopen(descriptor, "wb")

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self._num_bytes += len(raw_data)
        if self._num_bytes > self._max_bytes:
            raise ApplicationError(
                f"file: larger than the {self._max_bytes} bytes accepted (SEAMLESSFLOW_MAX_UPLOAD_BYTES)",
                status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            )
        self._digest.update(raw_data)
        self._file.write(raw_data)

    def file_complete(self, file_size: int) -> "UploadedFile[bytes] | None":
        assert self._path is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self.received = ReceivedFile(
            name=str(self.file_name), path=self._path, num_bytes=file_size, sha256=self._digest.hexdigest()
        )
        # Pass on only the name; this handler keeps the bytes.
        return UploadedFile(None, name=self.file_name, size=file_size)

    def discard(self) -> None:
        if self._path is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)
            os.close(self._lock)
            self._path = None
