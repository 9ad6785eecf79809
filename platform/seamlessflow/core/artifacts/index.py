"""The index of a bundle in an object store: which objects belong to it, with their sizes and digests.

An object store has neither folders nor renames. A bundle's files are uploaded under a name that no other upload uses;
its index is written last, in one request, and names that upload. Invariant: a bundle exists if and only if its index
does, and an index never names objects of two uploads.
"""

import hashlib

import msgspec

FORMAT_VERSION = 1
INDEX_NAME = "whole.json"


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    num_bytes: int
    sha256: str


class BundleIndex(msgspec.Struct, frozen=True, kw_only=True):
    format_version: int = FORMAT_VERSION
    upload: str  # the name under which the files were uploaded
    files: dict[str, FileFacts]  # by their names in the bundle, with slashes

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files.values())


class InvalidIndex(ValueError):
    """The index of a bundle cannot be read, or names files outside it."""


def index_encode(index: BundleIndex) -> bytes:
    return msgspec.json.format(msgspec.json.encode(index, order="sorted"), indent=1)


def index_decode(raw: bytes) -> BundleIndex:
    """Raises InvalidIndex."""
    try:
        index = msgspec.json.decode(raw, type=BundleIndex)
    except msgspec.DecodeError as error:
        raise InvalidIndex(f"it is not an index: {error}") from error
    if index.format_version != FORMAT_VERSION:
        raise InvalidIndex(f"it has format_version {index.format_version}, expected {FORMAT_VERSION}")
    for name in (index.upload, *index.files):
        if "\0" in name or {"", ".", ".."} & set(name.split("/")):
            raise InvalidIndex(f"it names {name!r}, which is no file of a bundle")
    return index


def index_digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
