"""Opens the artifact store that ARTIFACT_ROOT names: a folder, or objects with a cache on this host.

SEAMLESSFLOW_CACHE_DIR and SEAMLESSFLOW_CACHE_BYTES say where the cache is and how large it may grow; without them it is
in SEAMLESSFLOW_HOME and takes half of its disk. Processes that name the same folder use one cache. Of an S3 store the
client library reads address and credentials from the environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, …) or asks the
host's own role.
"""

import functools
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from seamlessflow.runtime.artifacts.node_cache import FILES, NodeCache, default_max_bytes
from seamlessflow.runtime.artifacts.object_store import ObjectStore
from seamlessflow.runtime.artifacts.shared_folder import SharedFolder
from seamlessflow.runtime.artifacts.store import ArtifactStore

ACCEPTED = "an absolute folder, as /path or file:///path, or s3://bucket[/prefix]"
CACHE_DIR_VARIABLE = "SEAMLESSFLOW_CACHE_DIR"
CACHE_BYTES_VARIABLE = "SEAMLESSFLOW_CACHE_BYTES"
# What opens the store: no engine and no agent gets any of it.
CREDENTIAL_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
)  # fmt: skip
_CONNECT_S, _READ_S, _NUM_TRIES = 10, 60, 5


class InvalidRoot(ValueError):
    """ARTIFACT_ROOT or a setting of its cache cannot be used; the message names the accepted values."""


def root_url(value: str) -> str:
    """Return the root as a URL. Raises InvalidRoot. Makes nothing and connects to nothing."""
    parts = urlsplit(value)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return Path(unquote(parts.path) if parts.scheme else value).as_uri()
    is_plain = not (parts.query or parts.fragment or "@" in parts.netloc or "//" in parts.path)
    if parts.scheme == "s3" and parts.netloc and is_plain:
        return value.rstrip("/")
    # The value may contain a secret, as in s3://key:secret@bucket.
    shown = "credentials; they belong in the environment" if "@" in parts.netloc else repr(value)
    raise InvalidRoot(f"ARTIFACT_ROOT is or contains {shown}; accepted: {ACCEPTED}")


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of this host's cache, which all processes of one home use."""
    home = Path(environ.get("SEAMLESSFLOW_HOME") or ".seamlessflow")
    return Path(environ.get(CACHE_DIR_VARIABLE) or home / "cache" / "artifacts").absolute()


def local_folder(url: str, environ: Mapping[str, str]) -> Path:
    """Return where this host keeps the files of a root URL: the folder itself, or the copies in the cache."""
    is_folder = url.startswith("file:")
    return Path(unquote(urlsplit(url).path)) if is_folder else cache_folder(environ) / FILES


def store_open(root: str) -> ArtifactStore:
    """Return the store of a root URL, one for each process. Raises InvalidRoot, StoreError."""
    url = root_url(root)
    if url.startswith("file:"):
        return SharedFolder(Path(unquote(urlsplit(url).path)))
    return _object_store(url, cache_folder(os.environ), os.environ.get(CACHE_BYTES_VARIABLE) or None)


@functools.lru_cache(maxsize=8)
def _object_store(url: str, folder: Path, max_bytes: str | None) -> ObjectStore:
    if max_bytes is not None and not (max_bytes.isdecimal() and int(max_bytes) > 0):
        raise InvalidRoot(f"{CACHE_BYTES_VARIABLE} is {max_bytes!r}; accepted: a whole number from 1 on")
    cache = NodeCache(folder, max_bytes=int(max_bytes) if max_bytes else default_max_bytes(folder))
    filesystem, errors = _s3()
    return ObjectStore(url, filesystem, cache, errors=errors)


def _s3() -> tuple[Any, tuple[type[Exception], ...]]:
    try:
        from aiohttp import ClientError
        from botocore.exceptions import BotoCoreError
        from s3fs import S3FileSystem
    except ImportError as error:
        raise InvalidRoot(
            f"ARTIFACT_ROOT is in S3, whose client is not installed ({error.name}): pip install 'seamlessflow[s3]'"
        ) from error
    for library in ("aiobotocore", "botocore"):  # they say where they found credentials, in each process
        logging.getLogger(library).setLevel(logging.WARNING)
    filesystem = S3FileSystem(
        use_listings_cache=False,  # other hosts write too
        skip_instance_cache=True,
        default_block_size=None,
        config_kwargs={
            "connect_timeout": _CONNECT_S,
            "read_timeout": _READ_S,
            "retries": {"max_attempts": _NUM_TRIES, "mode": "standard"},
        },
    )
    return filesystem, (BotoCoreError, ClientError)
