"""Batches of an offline dataset, without a database: what complete groups give, and what is refused."""

from http import HTTPStatus
from typing import Any, cast
from uuid import uuid4

import numpy as np
import pytest

from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.batching.format import batch_encode
from seamlessflow.core.job_spec import job_spec_parse
from seamlessflow.core.protocol.data_plane import BatchLeaseRequest
from seamlessflow.core.trajectory.flatten import PROMPT_VERSION
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind
from seamlessflow.data_plane.batches.offline import offline_batch
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.store.batches.datasets import DatasetGroup
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob
from tests.fakes.memory_datasets import MemoryDatasets

NUM_GROUPS = 4
GROUPS_PER_BATCH = 2


def job_of_a_dataset() -> LiveJob:
    spec = job_spec_parse(
        {
            "name": "imitation",
            "model": {"source": "model"},
            "data": {"source": "trajectories", "jobs": ["tiny"], "groups_per_batch": GROUPS_PER_BATCH},
            "algorithm": {"name": "sft"},
        }
    )
    text = cast(Any, None)  # nothing is rendered or parsed
    return LiveJob(uuid4(), uuid4(), "imitation", spec, "", "", text, "", num_dataset_groups=NUM_GROUPS)


def recorded(job: LiveJob, *, is_masked: bool = False) -> MemoryDatasets:
    """Put one session into each group, whose answer is the group's number."""
    store = MemoryDatasets()
    for position in range(NUM_GROUPS):
        ids = np.array([position], dtype="<i4").tobytes()
        logprob = np.array([-0.5], dtype="<f4").tobytes()
        mask = b"\0" if is_masked else None
        nodes = [
            Node(0, None, NodeKind.ROOT, np.arange(3, dtype="<i4").tobytes(), (), 3),
            Node(1, 0, NodeKind.SAMPLED, ids, (), 4, logprobs=logprob, spans=(0, 2), loss_mask=mask),
        ]
        session_id = uuid4()
        store.outcomes[session_id] = FinishedSession(1.0, nodes, num_sampled_tokens=1)
        store.positions[job.job_id, position] = DatasetGroup(uuid4(), (session_id,))
    return store


def asked(number: int) -> BatchLeaseRequest:
    return BatchLeaseRequest(applied_batch=number - 1, durable_batch=0, policy_version=number - 1, wait_s=0.0)


async def test_the_same_number_always_gives_the_same_batch_and_none_comes_after_the_last() -> None:
    job = job_of_a_dataset()
    store = recorded(job)

    first, again = [await offline_batch(store, job, asked(1)) for _ in range(2)]
    second, third = [await offline_batch(store, job, asked(number)) for number in (2, 3)]

    assert first is not None
    assert again is not None
    assert second is not None
    assert third is None
    assert batch_encode(first) == batch_encode(again)
    trained = [batch.token_ids[batch.loss_mask != 0].tolist() for batch in (first, second)]
    assert sorted(trained[0] + trained[1]) == list(range(NUM_GROUPS))
    assert (first.versions == PROMPT_VERSION).all()


async def test_a_batch_whose_groups_are_gone_is_refused_and_says_how_many() -> None:
    job = job_of_a_dataset()
    store = recorded(job)
    store.positions.clear()

    with pytest.raises(ApiError, match="2 of its 2 recorded groups were deleted") as refused:
        await offline_batch(store, job, asked(1))

    assert refused.value.status == HTTPStatus.GONE


async def test_a_batch_without_a_trainable_token_is_refused() -> None:
    job = job_of_a_dataset()

    with pytest.raises(ApiError, match="no trainable token"):
        await offline_batch(recorded(job, is_masked=True), job, asked(1))
