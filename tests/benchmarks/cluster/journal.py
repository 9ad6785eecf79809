"""The runs measured so far, one JSON line each, so an interrupted measurement loses none and
continues later.

A journal is named by a digest of the code and settings that it measures, so rows of different code
are never mixed. Once it is complete, it is renamed with its end time, and the next measurement
starts a new one.
"""

import hashlib
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one side."""

    workload: str
    side: str
    round: int
    figures: dict[str, float]
    time_shares: dict[str, float]  # of the working machines' time, by "state" or "state: cause"
    cpu_shares: dict[str, float]  # of one core, by process
    took_s: float
    load_before: float
    ended_at: str


class Journal:
    """Entries are on disk when `append` returns."""

    def __init__(self, folder: Path, *, digest: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"runs-{digest}.jsonl"
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]  # the last may have been cut
        self.entries = [msgspec.json.decode(line, type=Entry) for line in whole]
        self.path.write_bytes(b"".join(whole))

    def append(self, entry: Entry) -> None:
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(entry)

    def put_aside(self) -> Path:
        """Keep the complete journal under another name and return that name."""
        return self.path.rename(self.path.with_name(f"whole-{datetime.now(UTC):%Y%m%dT%H%M%S}.jsonl"))


def digest_of(settings: object, folders: Iterable[Path]) -> str:
    """Return the digest of the settings' text and of every Python file below the folders."""
    digest = hashlib.sha256(repr(settings).encode())
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        digest.update(path.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
