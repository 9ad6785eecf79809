"""What a back-up contains. The manifest is written last, so a folder without it is no back-up.

Paths are relative: `database.dump` to the back-up's folder, all others to `files/` in it and to ARTIFACT_ROOT.
"""

from datetime import datetime

import msgspec

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
INCOMPLETE_NAME = "INCOMPLETE"
DUMP_NAME = "database.dump"
FILES_NAME = "files"


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    num_bytes: int
    sha256: str


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the database names but that did not exist. `job_id` is empty for an upload."""

    job_id: str = ""
    job_name: str = ""
    what: str


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    format_version: int = FORMAT_VERSION
    made_at: datetime
    artifact_root: str  # of the original; paths in the database begin with it
    database: StoredFile
    files: list[StoredFile]
    missing: list[Missing] = []

    @property
    def num_bytes(self) -> int:
        return self.database.num_bytes + sum(file.num_bytes for file in self.files)


class DamagedBackup(ValueError):
    """The folder is not a complete back-up of a known format."""


def manifest_decode(data: bytes) -> BackupManifest:
    """Decode and check a manifest. Raises DamagedBackup."""
    try:
        manifest = msgspec.json.decode(data, type=BackupManifest)
    except msgspec.DecodeError as error:
        raise DamagedBackup(f"{MANIFEST_NAME} cannot be read: {error}") from error
    if manifest.format_version != FORMAT_VERSION:
        raise DamagedBackup(
            f"{MANIFEST_NAME} has format_version {manifest.format_version}; accepted: {FORMAT_VERSION}"
        )
    for file in manifest.files:
        if file.path.startswith("/") or ".." in file.path.split("/"):
            raise DamagedBackup(f"{MANIFEST_NAME} names {file.path!r}, which is no path in the artifacts")
    return manifest
