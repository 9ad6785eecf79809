"""Reads a tar from a stream, header by header, in bounded memory.

Takes a file, perhaps compressed, and yields its members in order; read each member's content before asking for the
next. Invariant: whatever the archive says, no more than one block, one extended header of MAX_HEADER_BYTES and one
chunk of content are in memory; headers of headers, sparse maps and lists of members are not kept.
"""

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

BLOCK = tarfile.BLOCKSIZE
MAX_HEADER_BYTES = 16 * 1024  # for a long name or extended header records
MAX_HEADERS = 4  # before one member
MAX_PATH_CHARS = 4096
XZ_MEMORY_BYTES = 64 * 1024**2
CHUNK_BYTES = 1024**2
_PATH, _SIZE = "path", "size"


class InvalidTar(ValueError):
    """The archive is damaged, or asks for more than is accepted."""


@dataclass(slots=True)
class TarMember:
    name: str
    type: bytes
    size: int
    _stream: IO[bytes]
    _num_left: int = field(init=False)

    def __post_init__(self) -> None:
        self._num_left = self.size

    @property
    def is_file(self) -> bool:
        return self.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)

    @property
    def is_folder(self) -> bool:
        return self.type == tarfile.DIRTYPE

    def chunks(self) -> Iterator[bytes]:
        """Yield the content. Raises InvalidTar if the archive ends early."""
        while self._num_left:
            chunk = self._stream.read(min(self._num_left, CHUNK_BYTES))
            if not chunk:
                raise InvalidTar("unexpected end of data")
            self._num_left -= len(chunk)
            yield chunk

    def skip(self) -> None:
        """Skip the unread content and its padding."""
        for _ in self.chunks():
            pass
        _exactly(self._stream, -self.size % BLOCK)


def tar_members(archive: Path) -> Iterator[TarMember]:
    """Yield the members in order. Raises InvalidTar, and whatever the decompressors raise."""
    with archive.open("rb") as raw, _plain(raw) as stream:
        while (member := _next(stream)) is not None:
            yield member
            member.skip()


def _next(stream: IO[bytes]) -> TarMember | None:
    """Return the next member with its extended headers applied; None at the end."""
    extended: dict[str, str] = {}
    for _ in range(MAX_HEADERS + 1):
        block = _exactly(stream, BLOCK)
        if block.count(0) == BLOCK:
            return None
        try:
            info = tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
        except tarfile.HeaderError as error:
            raise InvalidTar(str(error)) from error
        if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            text = _extended(stream, info.size).split(b"\0", 1)[0].decode(errors="surrogateescape")
            extended |= {_PATH: text} if info.type == tarfile.GNUTYPE_LONGNAME else {}
        elif info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE):
            records = _records(_extended(stream, info.size))
            extended |= records if info.type != tarfile.XGLTYPE else {}
        else:
            return _member(info, extended, stream)
    raise InvalidTar(f"more than {MAX_HEADERS} extended headers stand before one member")


def _member(info: tarfile.TarInfo, extended: dict[str, str], stream: IO[bytes]) -> TarMember:
    name, size = extended.get(_PATH, info.name), info.size
    if _SIZE in extended:
        if not (extended[_SIZE].isascii() and extended[_SIZE].isdecimal() and len(extended[_SIZE]) < 19):
            raise InvalidTar("the size of a member is not a number")
        size = int(extended[_SIZE])
    if size < 0 or len(name) > MAX_PATH_CHARS:
        raise InvalidTar(f"a member has a negative size or a name of more than {MAX_PATH_CHARS} characters")
    return TarMember(name.rstrip("/"), info.type, size if info.isreg() else 0, stream)


def _extended(stream: IO[bytes], size: int) -> bytes:
    if not 0 <= size <= MAX_HEADER_BYTES:
        raise InvalidTar(
            f"it has an extended header of {size} bytes; accepted: at most {MAX_HEADER_BYTES}, as for a long name"
        )
    content = _exactly(stream, size)
    _exactly(stream, -size % BLOCK)
    return content


def _records(content: bytes) -> dict[str, str]:
    """Parse records of the form `<length> <key>=<value>\\n`. Raises InvalidTar."""
    records: dict[str, str] = {}
    while content:
        digits, blank, _ = content.partition(b" ")
        length = int(digits) if blank and digits.isdigit() and len(digits) < 7 else 0
        record, content = content[:length], content[length:]
        key, equals, value = record[len(digits) + 1 :].partition(b"=")
        if length <= len(digits) or not equals or not value.endswith(b"\n"):
            raise InvalidTar("an extended header is damaged")
        name = key.decode(errors="replace")
        if name.startswith("GNU.sparse."):
            raise InvalidTar("it has a sparse file; pack it without --sparse")
        if name in (_PATH, _SIZE):
            records[name] = value[:-1].decode(errors="surrogateescape")
    return records


def _exactly(stream: IO[bytes], num_bytes: int) -> bytes:
    content = stream.read(num_bytes) if num_bytes else b""
    if len(content) != num_bytes:
        raise InvalidTar("unexpected end of data" if content else "it ends before its last member")
    return content


def _plain(raw: IO[bytes]) -> IO[bytes]:
    """Return the decompressed stream. Its first bytes name the compression."""
    start = raw.read(6)
    raw.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]  # it reads as one
    if start.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    if start.startswith(b"\xfd7zXZ"):
        return io.BufferedReader(_Xz(raw), CHUNK_BYTES)
    return raw


class _Xz(io.RawIOBase):
    """An xz stream with a memory limit, which `lzma.open` does not support."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._decompressor = lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = b""
        while not chunk and not self._decompressor.eof:
            source = self._raw.read(65536) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not source:
                raise EOFError("the compressed stream ends early")
            chunk = self._decompressor.decompress(source, len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)
