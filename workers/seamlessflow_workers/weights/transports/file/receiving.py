"""Reads a published policy version: takes a folder and checks its files against its manifest.

Invariant: a folder with bytes that differ from the manifest is refused.
"""

import hashlib
from pathlib import Path

from seamlessflow_workers.weights.manifest import ShardEntry, WeightsManifest, WeightsReadError, manifest_read

# Digests of more than this would take longer than loading the weights; then only sizes are checked.
MAX_DIGESTED_BYTES = 64 * 1024**2


def _verify(path: Path, entry: ShardEntry) -> None:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise WeightsReadError(f"shard {path} cannot be read: {error.strerror}") from error
    digest = hashlib.sha256(raw).hexdigest()
    if digest != entry.sha256:
        raise WeightsReadError(
            f"shard {path} is damaged: its sha256 is {digest}, the manifest says {entry.sha256}"
        )


def weights_verify(folder: Path, manifest: WeightsManifest) -> None:
    """Check every file. Raises WeightsReadError."""
    for name, entry in manifest.files.items():
        _verify(folder / name, entry)


def weights_check(folder: Path, *, version: int) -> None:
    """Check that a folder may be given to an engine: the manifest is this version's and every file is complete.

    Small versions are digested; of large ones only the sizes are compared. Both find a shard that is missing or cut
    short. Raises WeightsReadError.
    """
    manifest = manifest_read(folder)
    if manifest.version != version:
        raise WeightsReadError(f"the weights at {folder} are version {manifest.version}, expected {version}")
    for name, entry in manifest.files.items():
        try:
            num_bytes = (folder / name).stat().st_size
        except OSError as error:
            raise WeightsReadError(f"shard {folder / name} cannot be read: {error.strerror}") from error
        if num_bytes != entry.num_bytes:
            raise WeightsReadError(
                f"shard {folder / name} has {num_bytes} bytes, the manifest says {entry.num_bytes}"
            )
    if sum(entry.num_bytes for entry in manifest.files.values()) <= MAX_DIGESTED_BYTES:
        weights_verify(folder, manifest)
