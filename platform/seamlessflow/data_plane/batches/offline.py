"""Makes batches from trajectories of other jobs, one at a time, from a dataset fixed when the job was submitted.

The same number always gives the same batch (`core.dataset.epochs`), also after a restart, and only one batch's sessions
are in memory. Tokens are used as recorded. Policy versions and sampling temperatures of another job mean nothing to
this one, so no token has a version and the temperature is 1: the objective is plain likelihood.
"""

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from http import HTTPStatus

import numpy as np

from seamlessflow.core.algorithms.section import AlgorithmSection, OffPolicySection
from seamlessflow.core.batching.assembler import BatchPlan, assemble_batch
from seamlessflow.core.batching.finished import FinishedSession, with_trees
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.dataset.epochs import DatasetEpochs, EpochBatch
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.protocol.data_plane import BatchLeaseRequest
from seamlessflow.core.trajectory.flatten import PROMPT_VERSION
from seamlessflow.data_plane.errors import ApiError, bad_request
from seamlessflow.data_plane.store.batches.datasets import DatasetGroup
from seamlessflow.data_plane.store.protocols import DatasetStore
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob

TEMPERATURE = 1.0


async def offline_batch(store: DatasetStore, job: LiveJob, request: BatchLeaseRequest) -> Batch | None:
    """Return the requested batch; None after the last epoch.

    Raises ApiError: 410 if some of its sessions were deleted, 400 if no token in it can be trained.
    """
    epoch = _epochs(job).batch(request.number)
    if epoch is None:
        return None
    groups = await store.groups(job.job_id, epoch.positions.tolist())
    finished = await store.sessions(groups)
    _require_whole(request.number, epoch, groups, finished)
    finished = [with_trees(sessions, job.spec.train.trees) for sessions in finished]
    plan = _plan(job, request, epoch, num_sessions=sum(map(len, finished)))
    batch = await asyncio.to_thread(assemble_batch, finished, plan)
    if not batch.loss_mask.any():  # the stored masks of all its answers are 0
        message = (
            f"Batch {request.number} would have no trainable token; select other sessions or raise "
            f"data.groups_per_batch, which is {job.spec.data.groups_per_batch}."
        )
        raise bad_request(message, code="data_unusable")
    return dataclasses.replace(batch, versions=np.full_like(batch.versions, PROMPT_VERSION))


def _epochs(job: LiveJob) -> DatasetEpochs:
    data = job.spec.data
    return DatasetEpochs(
        num_groups=job.num_dataset_groups,
        groups_per_batch=data.groups_per_batch,
        num_epochs=data.num_epochs,
        seed=job.spec.seed,
        is_shuffled=data.shuffle,
    )


def _require_whole(
    number: int,
    epoch: EpochBatch,
    groups: Sequence[DatasetGroup],
    finished: Sequence[Sequence[FinishedSession]],
) -> None:
    num_missing = len(epoch.positions) - len(groups)
    for group, sessions in zip(groups, finished, strict=True):
        num_missing += len(sessions) < len(group.session_ids) or any(not one.nodes for one in sessions)
    if num_missing:
        num_all = len(epoch.positions)
        message = (
            f"Batch {number} cannot be made: {num_missing} of its {num_all} recorded groups were deleted."
        )
        raise ApiError(HTTPStatus.GONE, message, code="data_gone")


def _plan(job: LiveJob, request: BatchLeaseRequest, epoch: EpochBatch, *, num_sessions: int) -> BatchPlan:
    spec = job.spec
    return BatchPlan(
        job_id=str(job.job_id),
        number=request.number,
        policy_version=request.policy_version,
        temperature=TEMPERATURE,
        algorithm=_algorithm(spec),
        overlong_tokens=spec.overlong_tokens,
        overlong_turn_tokens=spec.overlong_turn_tokens,
        metrics={"train/epoch": epoch.epochs_done, "train/num_sessions": float(num_sessions)},
        objective=spec.train.objective,
        is_tree=spec.train.tree,
    )


def _algorithm(spec: JobSpec) -> AlgorithmSection:
    """Return the algorithm without reward and staleness limits, because the dataset was selected already."""
    return spec.algorithm.model_copy(update={"sft_min_reward": -math.inf, "off_policy": OffPolicySection()})
