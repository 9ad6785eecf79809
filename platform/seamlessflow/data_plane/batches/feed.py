"""Leases numbered batches to trainers: assembles them from the oldest ready groups, and repeats them byte for byte.

Invariants: the same number always gives the same bytes; a group is in at most one batch; no batch has trained tokens
beyond the staleness bound.
"""

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from uuid import UUID

import psycopg

from seamlessflow.core.algorithms.mode_aware import JudgeMarkers
from seamlessflow.core.algorithms.options import StalenessScope, StaleRule
from seamlessflow.core.batching.assembler import BatchPlan, assemble_batch
from seamlessflow.core.batching.failed_lengths import failure_metrics, length_bias
from seamlessflow.core.batching.finished import FinishedSession, marked_stale, with_trees
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.extensions.declarations import Extensions
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.groups import DropCause, GroupState
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.data_plane import BatchLeaseRequest
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.batches.offline import offline_batch
from seamlessflow.data_plane.batches.selection import Selection, groups_select, is_aged
from seamlessflow.data_plane.errors import ApiError, bad_request
from seamlessflow.data_plane.notifier import MAX_WAIT_S, JobNotifier, changed
from seamlessflow.data_plane.store.batches.batch_rows import (
    ReadyGroup,
    batch_insert,
    batch_may_be_ready,
    batch_release,
    batches_advance,
    finished_sessions,
    groups_ready,
    is_publisher,
    sessions_fresh_count,
)
from seamlessflow.data_plane.store.batches.datasets import PostgresDatasets
from seamlessflow.data_plane.store.batches.sampling import (
    failed_sessions,
    oldest_open_version,
    rollout_costs,
    seconds_since_last_batch,
    waste_read,
)
from seamlessflow.data_plane.store.connection import Connection, Pool
from seamlessflow.data_plane.store.events import length_bias_event, scheduler_notify
from seamlessflow.data_plane.store.groups.group_rows import num_rewarded_needed
from seamlessflow.data_plane.store.groups.moves import group_move, groups_move
from seamlessflow.data_plane.store.jobs import phase_lock, phase_require_live
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry
from seamlessflow.runtime.extensions import UnusableExtension
from seamlessflow.runtime.installed_estimators import estimator_make

log = logging.getLogger(__name__)

POLL_S = 0.2
MAX_NUMBER = 2**62


class BatchFeed:
    def __init__(
        self,
        pool: Pool,
        registry: Registry,
        extensions: Extensions,
        *,
        openings: JobNotifier,
        ready: JobNotifier,
    ) -> None:
        """`ready` announces that a group became ready, `openings` that more groups may begin."""
        self._extensions = extensions
        self._pool = pool
        self._datasets = PostgresDatasets(pool)
        self._registry = registry
        self._openings = openings
        self._ready = ready

    async def lease(self, claims: PhaseClaims, request: BatchLeaseRequest) -> bytes | None:
        """Return the bytes of the requested batch, or None if it was not ready in time.

        Raises ApiError: 400 for a number out of range, 409 if the phase is over or another trainer has the job.
        """
        for field in ("applied_batch", "durable_batch", "policy_version"):
            number = getattr(request, field)
            if not 0 <= number < MAX_NUMBER:
                raise bad_request(
                    f"{field} must be at least 0 and less than 2**62, got {number}.", param=field
                )
        job = await self._registry.job(claims.job_id)
        deadline_s = time.monotonic() + min(max(request.wait_s, 0.0), MAX_WAIT_S)
        is_first = True
        while True:
            ticket = self._ready.ticket(claims.job_id)
            if is_first or await self._may_be_ready(claims, request, job):
                payload = await self._lease_once(claims, request, job)
                if payload is not None:
                    return payload
            is_first = False
            if time.monotonic() >= deadline_s:
                async with self._pool.connection() as connection:
                    await scheduler_notify(connection, "batch feed short")
                return None
            await changed(ticket, timeout_s=min(POLL_S, max(0.0, deadline_s - time.monotonic())))

    async def _may_be_ready(self, claims: PhaseClaims, request: BatchLeaseRequest, job: LiveJob) -> bool:
        """Return whether another try is worth its locks. Raises ApiError (409)."""
        async with self._pool.connection() as connection:
            await phase_require_live(connection, claims)
            return job.spec.data.is_offline or await batch_may_be_ready(
                connection, claims.job_id, request.number, num_groups=job.spec.rollout.groups_per_batch
            )

    async def _lease_once(
        self, claims: PhaseClaims, request: BatchLeaseRequest, job: LiveJob
    ) -> bytes | None:
        """Try once. Reading and assembling take long and need no lock, because ready groups no longer change."""
        async with self._locked(claims) as connection:
            await batches_advance(connection, claims.job_id, request)
            payload = await batch_release(connection, claims, request.number)
            if payload is not None:
                return payload
            if not job.spec.data.is_offline:
                groups = await _groups_take(connection, claims.job_id, request.policy_version, job.spec)
                waste = await waste_read(connection, claims.job_id)
        if job.spec.data.is_offline:
            return await self._offline_batch(claims, request, job)
        if groups is None:
            return None
        async with self._pool.connection() as connection:
            finished = await finished_sessions(connection, [group.group_id for group in groups])
            elapsed_s = await seconds_since_last_batch(connection, claims.job_id)
            costs = await rollout_costs(connection, [group.group_id for group in groups])
            failed = await failed_sessions(
                connection,
                [group.group_id for group in groups],
                are_resumed=job.spec.environment.resumes_failed,
            )
            lengths = [session.num_sampled_tokens for sessions in finished for session in sessions]
            if warning := length_bias(failed, lengths):
                await length_bias_event(
                    connection, project_id=claims.project_id, job_id=claims.job_id, warning=warning
                )
            costs |= failure_metrics(failed)
        finished = [with_trees(sessions, job.spec.train.trees) for sessions in finished]
        if job.spec.algorithm.off_policy.staleness_scope is StalenessScope.SAMPLE:
            bound = job.spec.algorithm.staleness_bound
            oldest_allowed = bound.oldest_version(step_version=request.policy_version)
            finished = [marked_stale(sessions, oldest_allowed=oldest_allowed) for sessions in finished]
        plan = _plan(claims, request, job, {**waste.metrics, **costs, **_speed(finished, elapsed_s)})
        batch = await asyncio.to_thread(assembled, finished, plan, self._extensions)
        return await self._store(claims, batch, groups, waste.group_ids)

    async def _offline_batch(
        self, claims: PhaseClaims, request: BatchLeaseRequest, job: LiveJob
    ) -> bytes | None:
        """Make a batch from an offline dataset, which never has to wait for sessions."""
        batch = await offline_batch(self._datasets, job, request)
        return None if batch is None else await self._store(claims, batch)

    async def _store(
        self,
        claims: PhaseClaims,
        batch: Batch,
        groups: Sequence[ReadyGroup] = (),
        replaced: Sequence[UUID] = (),
    ) -> bytes | None:
        """Store the batch and return its bytes. If another request was faster, return its batch, or None.

        None means that the other request took these groups under another number.
        """
        number = batch.header.number
        async with self._locked(claims) as connection:
            payload = await batch_release(connection, claims, number)
            if payload is not None:
                return payload
            ids = {group.group_id for group in groups}
            moved = await groups_move(
                connection, list(ids), GroupState.READY, GroupState.BATCHED, reason=f"in batch {number}"
            )
            if moved != ids:
                raise psycopg.Rollback
            payload = await batch_insert(connection, claims, batch, groups, replaced)
        if payload is not None:
            metrics.BATCHES.inc()
            self._openings.notify(claims.job_id)
        return payload

    @contextlib.asynccontextmanager
    async def _locked(self, claims: PhaseClaims) -> AsyncIterator[Connection]:
        """Yield a transaction under the job's lock, if this phase is the job's live trainer. Raises ApiError (409)."""
        async with self._pool.connection() as connection, connection.transaction():
            await phase_lock(connection, claims)
            if not await is_publisher(connection, claims):
                raise ApiError(
                    HTTPStatus.CONFLICT,
                    "Another phase trains the job now; this one is over.",
                    code="stale_fence",
                )
            yield connection


async def _groups_take(
    connection: Connection, job_id: UUID, policy_version: int, spec: JobSpec
) -> Sequence[ReadyGroup] | None:
    """Drop the stale groups and return the oldest groups of one batch. Call it under the job's lock.

    Returns None if too few groups are trainable, or if the job waits for groups that still run.
    """
    selection = await _selected(connection, job_id, policy_version, spec)
    for group in selection.stale:
        await group_move(
            connection,
            group.group_id,
            GroupState.READY,
            GroupState.DROPPED,
            reason=group.reason,
            cause=DropCause.STALE,
        )
        metrics.GROUPS_DROPPED.inc()
    num_groups = spec.rollout.groups_per_batch
    if len(selection.trainable) < num_groups or await _must_wait(connection, job_id, policy_version, spec):
        return None
    return selection.trainable[:num_groups]


async def _selected(connection: Connection, job_id: UUID, policy_version: int, spec: JobSpec) -> Selection:
    oldest_allowed = spec.algorithm.staleness_bound.oldest_version(step_version=policy_version)
    ready = await groups_ready(connection, job_id)
    is_by_token = spec.algorithm.off_policy.staleness_scope is StalenessScope.TOKEN
    aged = [group.group_id for group in ready if is_aged(group, oldest_allowed, is_by_token=is_by_token)]
    num_fresh = await sessions_fresh_count(connection, aged, oldest_allowed=oldest_allowed) if aged else {}
    return groups_select(
        ready,
        num_fresh,
        policy_version=policy_version,
        oldest_allowed=oldest_allowed,
        num_needed=num_rewarded_needed(spec.rollout.group_size),
    )


async def _must_wait(connection: Connection, job_id: UUID, policy_version: int, spec: JobSpec) -> bool:
    """Return whether the job waits for a running group that the next version would put beyond the staleness bound."""
    if spec.algorithm.off_policy.stale_groups is not StaleRule.WAIT:
        return False
    oldest = await oldest_open_version(connection, job_id)
    bound = spec.algorithm.staleness_bound
    return oldest is not None and bound.is_beyond(oldest, step_version=policy_version + 1)


def assembled(
    finished: Sequence[Sequence[FinishedSession]], plan: BatchPlan, extensions: Extensions
) -> Batch:
    """Assemble a batch. Raises ApiError (400) if the job's installed estimator does not work in this process."""
    try:
        estimator = estimator_make(plan.algorithm, extensions)
        return assemble_batch(finished, dataclasses.replace(plan, installed_estimator=estimator))
    except UnusableExtension as error:
        log.error("batch %d of job %s cannot be made: %s", plan.number, plan.job_id, error)
        message = f"Batch {plan.number} cannot be made: {error}."
        raise bad_request(message, code="extension_unusable") from error


def _speed(finished: Sequence[Sequence[FinishedSession]], elapsed_s: float | None) -> dict[str, float]:
    """Return the rollout's tokens per second since the last batch; nothing for the first batch."""
    if not elapsed_s:
        return {}
    num_tokens = sum(session.num_sampled_tokens for group in finished for session in group)
    return {"perf/rollout_tokens_per_s": num_tokens / elapsed_s}


def _plan(
    claims: PhaseClaims, request: BatchLeaseRequest, job: LiveJob, costs: Mapping[str, float]
) -> BatchPlan:
    spec, judge = job.spec, job.spec.algorithm.judge
    return BatchPlan(
        job_id=str(claims.job_id),
        number=request.number,
        policy_version=request.policy_version,
        temperature=spec.rollout.temperature,
        algorithm=spec.algorithm,
        overlong_tokens=spec.overlong_tokens,
        overlong_turn_tokens=spec.overlong_turn_tokens,
        judge_markers=JudgeMarkers(end=job.text.ids(judge.end), on=job.text.ids(judge.on)),
        metrics=costs,
        objective=spec.train.objective,
        is_tree=spec.train.tree,
    )
