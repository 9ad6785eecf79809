"""The manifest of one policy version, and where versions are stored.

`<artifact_root>/<job>/versions/<n>/` has `manifest.json` and the shards that it lists. A folder with that name is
complete, because it is written under another name and renamed. The manifest contains no time and no host, so the same
weights give the same bytes and its digest identifies them. A version that is an adapter over the job's initial model is
stored in peft's own format: `adapter_model.safetensors`, its only shard, and `adapter_config.json`.
"""

import hashlib
from pathlib import Path
from uuid import UUID

import msgspec

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
ADAPTER_CONFIG_NAME = "adapter_config.json"
ADAPTER_SHARD_NAME = "adapter_model.safetensors"


class TensorEntry(msgspec.Struct, frozen=True, kw_only=True):
    shard: str
    dtype: str  # as safetensors names it: F32, BF16
    shape: list[int]


class ShardEntry(msgspec.Struct, frozen=True, kw_only=True):
    sha256: str
    num_bytes: int


class WeightsManifest(msgspec.Struct, frozen=True, kw_only=True):
    format_version: int = FORMAT_VERSION
    job_id: UUID
    version: int
    parent_version: int
    dtype: str  # of the job spec: float32, bfloat16
    total_bytes: int
    shards: dict[str, ShardEntry]
    tensors: dict[str, TensorEntry]
    are_finite: bool = False  # whether the writer has checked that no value is NaN or infinite
    companions: dict[str, ShardEntry] = {}  # files beside the shards: the configuration of an adapter

    @property
    def files(self) -> dict[str, ShardEntry]:
        return {**self.shards, **self.companions}


class WeightsReadError(RuntimeError):
    """Published weights are missing, of another format or damaged."""


def manifest_encode(manifest: WeightsManifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1)


def manifest_digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def manifest_read(folder: Path) -> WeightsManifest:
    """Read the manifest of a version folder. Raises WeightsReadError."""
    path = folder / MANIFEST_NAME
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=WeightsManifest)
    except OSError as error:
        raise WeightsReadError(f"weights at {folder} have no readable manifest: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise WeightsReadError(f"{path} is not a manifest: {error}") from error
    if manifest.format_version != FORMAT_VERSION:
        raise WeightsReadError(
            f"{path} has format_version {manifest.format_version}, expected {FORMAT_VERSION}"
        )
    return manifest
