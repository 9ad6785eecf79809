"""The bytes of a batch: round trip, and other versions of the format."""

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load, save

from seamlessflow.core.batching.format import batch_decode, batch_encode
from tests.fixtures.trainer_harness import make_batch


def test_a_round_trip_is_exact_and_the_bytes_are_stable() -> None:
    batch = make_batch(3)
    raw = batch_encode(batch)
    again = batch_decode(raw)
    assert again.header == batch.header
    assert batch_encode(again) == raw


def with_header(raw: bytes, **changes: object) -> dict[str, np.ndarray]:
    arrays = load(raw)
    header = {**msgspec.json.decode(arrays["header"].tobytes()), **changes}
    return {**arrays, "header": np.frombuffer(msgspec.json.encode(header), dtype=np.uint8)}


@pytest.mark.parametrize("version", [0, 3, 5])
def test_other_versions_are_refused(version: int) -> None:
    arrays = with_header(batch_encode(make_batch(3)), format_version=version)
    with pytest.raises(ValueError, match=f"format_version {version}, expected 4"):
        batch_decode(save(arrays))
