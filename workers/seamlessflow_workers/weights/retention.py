"""Which published versions stay on disk: the newest `keep_last` and the pinned ones.

A version vanishes by a rename first, so no reader ever finds half of one.
"""

import shutil
from collections.abc import Collection
from pathlib import Path

from seamlessflow_workers.weights.publish import WRITING_PREFIX

_DELETING_PREFIX = ".deleting-"


def published_versions(versions: Path) -> list[int]:
    """Versions on disk, oldest first."""
    if not versions.is_dir():
        return []
    return sorted(
        int(entry.name) for entry in versions.iterdir() if entry.name.isdecimal() and entry.is_dir()
    )


def prune(versions: Path, *, keep_last: int, pinned: Collection[int] = frozenset()) -> list[int]:
    """Delete older versions that are not pinned, and what killed writers left. Returns the versions deleted."""
    if keep_last < 1:
        raise ValueError(f"keep_last must be at least 1, got {keep_last}")
    known = published_versions(versions)
    doomed = [version for version in known[:-keep_last] if version not in pinned]
    for entry in versions.glob(f"{_DELETING_PREFIX}*"):
        shutil.rmtree(entry)  # of a process that was killed while deleting
    for version in doomed:
        shutil.rmtree((versions / str(version)).rename(versions / f"{_DELETING_PREFIX}{version}"))
    for entry in versions.glob(f"{WRITING_PREFIX}*"):
        if known and int(entry.name.removeprefix(WRITING_PREFIX)) < known[-1]:
            shutil.rmtree(entry)  # its version was published by another attempt, or never will be
    return doomed
