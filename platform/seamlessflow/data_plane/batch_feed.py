"""Numbered batches for trainers: assembled from the oldest ready groups, released again byte for byte.

Invariants: batch n + 1 is given to who has applied n; the same number gives the same bytes; a group is in one batch;
nothing beyond the staleness bound is in any.
"""

import asyncio
import time
from http import HTTPStatus

from seamlessflow.core.batching.assembler import BatchPlan, FinishedSession, assemble_batch
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.groups import GroupState
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.data_plane import BatchLeaseRequest
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.group_feed import MAX_WAIT_S, phase_require_live
from seamlessflow.data_plane.store.batches import (
    ReadyGroup,
    batch_insert,
    batch_release,
    batches_advance,
    groups_ready,
    is_publisher,
    sessions_of_groups,
)
from seamlessflow.data_plane.store.connection import Connection, Pool
from seamlessflow.data_plane.store.events import scheduler_notify
from seamlessflow.data_plane.store.groups import group_move, job_lock
from seamlessflow.data_plane.store.node_rows import nodes_read
from seamlessflow.data_plane.trajectory_manager.registry import Registry

POLL_S = 0.2


class BatchFeed:
    def __init__(self, pool: Pool, registry: Registry) -> None:
        self._pool = pool
        self._registry = registry

    async def lease(self, claims: PhaseClaims, request: BatchLeaseRequest) -> bytes | None:
        """The bytes of batch `applied_batch` + 1, or None when none was ready in time. Raises ApiError (409)."""
        job = await self._registry.job(claims.job_id)
        deadline_s = time.monotonic() + min(max(request.wait_s, 0.0), MAX_WAIT_S)
        while True:
            payload = await self._lease_once(claims, request, job.spec)
            if payload is not None:
                return payload
            if time.monotonic() >= deadline_s:
                async with self._pool.connection() as connection:
                    await scheduler_notify(connection, "batch feed short")
                return None
            await asyncio.sleep(min(POLL_S, max(0.0, deadline_s - time.monotonic())))

    async def _lease_once(
        self, claims: PhaseClaims, request: BatchLeaseRequest, spec: JobSpec
    ) -> bytes | None:
        async with self._pool.connection() as connection, connection.transaction():
            await phase_require_live(connection, claims)
            if not await is_publisher(connection, claims):
                raise ApiError(HTTPStatus.CONFLICT, "Another trainer has the job now.", code="stale_fence")
            await job_lock(connection, claims.job_id)
            await batches_advance(connection, claims.job_id, request)
            payload = await batch_release(connection, claims, request.applied_batch + 1)
            if payload is not None:
                return payload
            groups = await _fresh_groups(connection, claims, request.policy_version, spec)
            if groups is None:
                return None
            batch = await _assemble(connection, claims, request, groups, spec)
            for group in groups:
                reason = f"in batch {batch.header.number}"
                await group_move(
                    connection, group.group_id, GroupState.READY, GroupState.BATCHED, reason=reason
                )
            payload = await batch_insert(connection, claims, batch, groups)
        metrics.BATCHES.inc()
        return payload


async def _fresh_groups(
    connection: Connection, claims: PhaseClaims, policy_version: int, spec: JobSpec
) -> list[ReadyGroup] | None:
    """The oldest groups of one batch; those beyond the staleness bound are dropped. None when there are too few."""
    fresh = []
    oldest_allowed = policy_version - spec.algorithm.max_staleness
    for group in await groups_ready(connection, claims.job_id):
        if group.min_version is None or group.min_version < oldest_allowed:
            reason = (
                "it holds no sampled token of a known version"
                if group.min_version is None
                else f"sampled by version {group.min_version}; the oldest that may train now is {oldest_allowed}"
            )
            await group_move(connection, group.group_id, GroupState.READY, GroupState.DROPPED, reason=reason)
            metrics.GROUPS_DROPPED.inc()
        elif group.max_version is None or group.max_version <= policy_version:
            fresh.append(group)
    num_needed = spec.rollout.groups_per_batch
    return fresh[:num_needed] if len(fresh) >= num_needed else None


async def _assemble(
    connection: Connection,
    claims: PhaseClaims,
    request: BatchLeaseRequest,
    groups: list[ReadyGroup],
    spec: JobSpec,
) -> Batch:
    rows = await sessions_of_groups(connection, [group.group_id for group in groups])
    nodes = await nodes_read(connection, [(month, session) for _, month, session, _ in rows])
    finished = [
        [
            FinishedSession(reward, [row.node for row in nodes[session]])
            for owner, _, session, reward in rows
            if owner == group.group_id
        ]
        for group in groups
    ]
    plan = BatchPlan(
        job_id=str(claims.job_id),
        number=request.applied_batch + 1,
        policy_version=request.policy_version,
        temperature=spec.rollout.temperature,
        advantage_norm=spec.algorithm.advantage_norm,
    )
    return await asyncio.to_thread(assemble_batch, finished, plan)
