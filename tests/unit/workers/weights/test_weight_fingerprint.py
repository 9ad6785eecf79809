"""One checksum in two places: of bytes as they are written, of tensors where they lie."""

import numpy as np
import pytest
import torch

from seamlessflow_workers.weights.fingerprint import Fingerprint
from seamlessflow_workers.weights.transports.cuda_ipc import receiving
from seamlessflow_workers.weights.transports.cuda_ipc.receiving import fingerprint_of

MASK = (1 << 64) - 1


def plainly(raw: bytes) -> str:
    """As the finalizer is published, word by word."""
    total = 0
    padded = raw.ljust(-(-len(raw) // 8) * 8, b"\0")
    for number in range(len(padded) // 8):
        word = int.from_bytes(padded[8 * number : 8 * number + 8], "little")
        mixed = (word + number * 0x9E3779B97F4A7C15) & MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        total += mixed ^ (mixed >> 31)
    return f"{total & MASK:016x}"


def of_pieces(raw: bytes, *lengths: int) -> str:
    mark = Fingerprint()
    begin = 0
    for length in (*lengths, len(raw)):
        mark.update(raw[begin : begin + length])
        begin += length
    return mark.show()


def some(num_bytes: int) -> bytes:
    return np.random.default_rng(num_bytes).integers(0, 256, num_bytes, dtype=np.uint8).tobytes()


@pytest.mark.parametrize("num_bytes", [0, 1, 7, 8, 9, 64, 1000, 1001])
def test_bytes_have_one_fingerprint_however_they_come_and_wherever_they_lie(
    num_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = some(num_bytes)
    expected = plainly(raw)
    for lengths in ((), (3,), (8, 8), (1, 2, 3, 4), (17, 0, 5)):
        assert of_pieces(raw, *lengths) == expected
    monkeypatch.setattr(receiving, "_PROOF_WORDS", 5)
    padded = torch.frombuffer(
        bytearray(raw.ljust(-(-num_bytes // 8) * 8, b"\0") or bytes(8)), dtype=torch.uint8
    )
    assert fingerprint_of(padded) == (expected if num_bytes else plainly(bytes(8)))


def test_blocks_of_a_large_shard_are_added_up() -> None:
    raw = some(3 << 20)
    assert of_pieces(raw) == of_pieces(raw, 1 << 20, 12345) == plainly(raw)


def test_any_accident_within_a_word_and_any_change_of_places_shows() -> None:
    raw = bytearray(some(4096))
    before = of_pieces(bytes(raw))
    seen = {before}
    for place in range(0, 4096, 37):
        changed = bytearray(raw)
        changed[place] ^= 1 << (place % 8)
        seen.add(of_pieces(bytes(changed)))
    assert len(seen) == 1 + len(range(0, 4096, 37))
    assert of_pieces(bytes(raw[8:16] + raw[:8] + raw[16:])) != before
    assert of_pieces(bytes(8) + bytes(raw)) != before
