"""Brings a file into memory before a thread that must not wait for a disk reads it.

Takes a path; afterwards the file's pages are in the kernel's cache, from which they are mapped without a copy. Python's
other threads go on meanwhile: reading gives up the interpreter's lock, and advice about mapped memory would not.
"""

from pathlib import Path

_PIECE_BYTES = 4 * 1024**2


def pages_load(path: Path) -> None:
    """Return once the file is in memory. Raises OSError."""
    buffer = bytearray(_PIECE_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            continue
