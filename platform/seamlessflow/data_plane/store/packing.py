"""Token arrays as they lie in rows: zstd over packed little-endian bytes."""

import zstandard

LEVEL = 3
_compressor = zstandard.ZstdCompressor(level=LEVEL)
_decompressor = zstandard.ZstdDecompressor()


def packed(raw: bytes) -> bytes:
    return _compressor.compress(raw)


def unpacked(stored: bytes) -> bytes:
    return _decompressor.decompress(stored)
