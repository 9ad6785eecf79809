"""The bytes of a batch: round trip, and batches of earlier format versions."""

import dataclasses

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load, save

from seamlessflow.core.batching.format import batch_decode, batch_encode
from tests.fixtures.trainer_harness import make_batch

GUIDED = ("guided_starts", "guided_ends", "guided_guides")


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


def test_a_batch_of_version_1_is_read_as_trees_of_one_branch() -> None:
    batch = make_batch(3)
    arrays = with_header(batch_encode(batch), format_version=1)
    for name in (
        "sample_parents",
        "loss_weights",
        "sessions",
        "groups",
        "session_rewards",
        "session_groups",
        *GUIDED,
    ):
        del arrays[name]
    arrays["advantages"] = arrays.pop("advantages_positive") + arrays.pop("advantages_negative")
    alone = dataclasses.replace(
        batch, groups=np.zeros_like(batch.groups), session_groups=np.zeros_like(batch.session_groups)
    )
    assert batch_encode(batch_decode(save(arrays))) == batch_encode(alone)


def test_a_batch_of_version_2_knows_the_rewards_of_the_sessions_that_it_trains() -> None:
    batch = make_batch(3)
    arrays = with_header(batch_encode(batch), format_version=2)
    for name in ("session_rewards", "session_groups", *GUIDED):
        del arrays[name]
    arrays["sessions"] = arrays["sessions"] * 2 + 1  # sessions without a sample lay between them
    again = batch_decode(save(arrays))
    assert again.sessions.tolist() == list(range(10))
    assert again.session_rewards.tolist() == batch.rewards.tolist()
    assert again.session_groups.tolist() == batch.groups.tolist()


def test_a_batch_of_version_3_has_no_guided_answers() -> None:
    batch = make_batch(3)
    arrays = with_header(batch_encode(batch), format_version=3)
    for name in GUIDED:
        del arrays[name]
    assert batch_encode(batch_decode(save(arrays))) == batch_encode(batch)


@pytest.mark.parametrize("version", [0, 5])
def test_other_versions_are_refused(version: int) -> None:
    arrays = with_header(batch_encode(make_batch(3)), format_version=version)
    with pytest.raises(ValueError, match=f"format_version {version} is not from 1 to 4"):
        batch_decode(save(arrays))
