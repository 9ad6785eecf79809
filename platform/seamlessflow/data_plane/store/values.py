"""How token arrays are written for PostgreSQL: as compressed bytes in rows."""

import zstandard

LEVEL = 3
_compressor = zstandard.ZstdCompressor(level=LEVEL)
_decompressor = zstandard.ZstdDecompressor()


def packed(raw: bytes) -> bytes:
    """Return packed little-endian bytes, compressed with zstd, as rows hold them."""
    return _compressor.compress(raw)


def unpacked(stored: bytes) -> bytes:
    return _decompressor.decompress(stored)
