"""Reads a published policy version back, checked against its manifest: a folder in, verified shard bytes out."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from seamlessflow_workers.weights.manifest import Manifest, WeightsReadError


def verified_shards(folder: Path, manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """Yield (shard name, bytes of a safetensors file), one shard in memory at a time.

    The bytes given out are those that were checked. Raises WeightsReadError when one is missing or damaged.
    """
    for name, entry in sorted(manifest.shards.items()):
        try:
            raw = (folder / name).read_bytes()
        except OSError as error:
            raise WeightsReadError(f"shard {folder / name} cannot be read: {error.strerror}") from error
        digest = hashlib.sha256(raw).hexdigest()
        if digest != entry.sha256:
            raise WeightsReadError(
                f"shard {folder / name} is damaged: sha256 {digest}, manifest says {entry.sha256}"
            )
        yield name, raw


def weights_verify(folder: Path, manifest: Manifest) -> None:
    """Check every shard. Raises WeightsReadError."""
    for _ in verified_shards(folder, manifest):
        continue
