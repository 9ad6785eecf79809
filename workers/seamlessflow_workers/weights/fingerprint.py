"""A checksum of a shard's bytes that a GPU computes as fast as it reads them.

sha256 has to run on the host, byte after byte. This checksum is a sum over 8-byte words, each mixed with its position,
so any number of threads can add it up in any order: the trainer over arrays while it writes a shard's file, an engine
over tensors in its GPU's memory. The mixing (the finalizer of SplitMix64; Steele, Lea, Flood: Fast splittable
pseudorandom number generators, OOPSLA 2014) maps words one to one, so a change within one word is always detected, and
any other accident is missed once in 2^64. It is no defence against somebody who chooses the bytes; the sha256 in the
same manifest is.
"""

from typing import Any

import numpy as np

WORD_BYTES = 8
_BLOCK_WORDS = 1 << 17  # small enough to stay in a processor's cache
_MODULUS = 1 << 64
_STEP, _FIRST, _SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def words_mix(words: Any, numbers: Any) -> int:
    """Return the sum of mixed words, modulo 2^64. `numbers` are their positions, from 0.

    Both are int64, as numpy arrays or as tensors.
    """
    mixed = numbers * _STEP
    mixed += words
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        mixed ^= (mixed >> shift) & ((1 << (64 - shift)) - 1)
        mixed *= factor
    mixed ^= (mixed >> 31) & ((1 << 33) - 1)
    return int(mixed.sum()) % _MODULUS


def fingerprint_show(total: int) -> str:
    return f"{total % _MODULUS:016x}"


class Fingerprint:
    """The checksum of bytes that come piece by piece; an incomplete last word is padded with zeros."""

    def __init__(self) -> None:
        self._total = 0
        self._num_words = 0
        self._rest = b""

    def update(self, chunk: bytes | memoryview) -> None:
        view = memoryview(chunk).cast("B")
        if self._rest:
            filling = min(WORD_BYTES - len(self._rest), len(view))
            self._rest += bytes(view[:filling])
            view = view[filling:]
            if len(self._rest) == WORD_BYTES:
                self._add(memoryview(self._rest))
                self._rest = b""
        whole = len(view) - len(view) % WORD_BYTES
        self._add(view[:whole])
        self._rest += bytes(view[whole:])

    def show(self) -> str:
        """Return the checksum of all bytes so far as 16 hexadecimal digits."""
        last = np.frombuffer(self._rest.ljust(WORD_BYTES, b"\0") if self._rest else b"", dtype="<i8")
        numbers = np.arange(self._num_words, self._num_words + len(last))
        return fingerprint_show(self._total + words_mix(last, numbers))

    def _add(self, view: memoryview) -> None:
        words = np.frombuffer(view, dtype="<i8")
        for begin in range(0, len(words), _BLOCK_WORDS):
            block = words[begin : begin + _BLOCK_WORDS]
            first = self._num_words + begin
            self._total += words_mix(block, np.arange(first, first + len(block)))
        self._num_words += len(words)
