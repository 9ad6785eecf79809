"""Rows of numbered batches: the same number always gives the same bytes, until a durable checkpoint contains it."""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.batching.format import Batch, batch_encode
from seamlessflow.core.lifecycle.groups import BATCH_MOVES, BatchState, GroupState, SessionState
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.data_plane import BatchLeaseRequest
from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES, Node, NodeKind
from seamlessflow.data_plane.store.connection import Connection, new_id
from seamlessflow.data_plane.store.turns.node_rows import GUIDE_FLAG, stored_guide
from seamlessflow.data_plane.store.values import packed, sql_literal, unpacked

_BATCH_APPLIED = sql_literal(BatchState.APPLIED)
_BATCH_FORGOTTEN = sql_literal(BatchState.FORGOTTEN)
_BATCH_LEASED = sql_literal(BatchState.LEASED)
_SESSION_CLOSED = sql_literal(SessionState.CLOSED)

LEASE_S = 600.0


@dataclass(frozen=True, slots=True)
class ReadyGroup:
    group_id: UUID
    min_version: int | None
    max_version: int | None


async def is_publisher(connection: Connection, claims: PhaseClaims) -> bool:
    """Return whether this phase still has the job's train fence."""
    cursor = await connection.execute(
        "SELECT 1 FROM jobs_job WHERE id = %s AND train_fence = %s", [claims.job_id, claims.fence]
    )
    return await cursor.fetchone() is not None


async def batches_advance(connection: Connection, job_id: UUID, request: BatchLeaseRequest) -> None:
    """Mark batches up to `applied_batch` as applied, and delete the bytes of those in a durable checkpoint."""
    BATCH_MOVES.check(BatchState.LEASED, BatchState.APPLIED)
    BATCH_MOVES.check(BatchState.APPLIED, BatchState.FORGOTTEN)
    await connection.execute(
        f"""UPDATE trajectory_batch SET state = {_BATCH_APPLIED}, applied_at = now()
           WHERE job_id = %s AND number <= %s AND state = {_BATCH_LEASED}""",
        [job_id, request.applied_batch],
    )
    await connection.execute(
        f"""UPDATE trajectory_batch SET state = {_BATCH_FORGOTTEN}, payload = NULL
           WHERE job_id = %s AND number <= %s AND number <= %s AND state = {_BATCH_APPLIED}""",
        [job_id, request.durable_batch, request.applied_batch],
    )


async def batches_applied_note(connection: Connection) -> None:
    """Mark batches that are in published weights as applied, even if no trainer asks for the next one."""
    BATCH_MOVES.check(BatchState.LEASED, BatchState.APPLIED)
    await connection.execute(
        f"""UPDATE trajectory_batch b SET state = {_BATCH_APPLIED}, applied_at = now() FROM jobs_job j
           WHERE b.state = {_BATCH_LEASED} AND j.id = b.job_id AND b.number <= j.published_batch"""
    )


async def batch_release(connection: Connection, claims: PhaseClaims, number: int) -> bytes | None:
    """Lease a batch to this phase and return its bytes; None if the batch does not exist yet or has lost its bytes."""
    cursor = await connection.execute(
        """UPDATE trajectory_batch SET lease_phase_id = %s, lease_fence = %s,
                  lease_expires_at = now() + make_interval(secs => %s)
           WHERE job_id = %s AND number = %s AND payload IS NOT NULL RETURNING payload""",
        [claims.phase_id, claims.fence, LEASE_S, claims.job_id, number],
    )
    row = await cursor.fetchone()
    return None if row is None else unpacked(row[0])


async def groups_ready(connection: Connection, job_id: UUID) -> list[ReadyGroup]:
    """Lock the ready groups and return them, oldest first."""
    cursor = await connection.execute(
        """SELECT id, min_version, max_version FROM trajectory_group
           WHERE job_id = %s AND state = %s ORDER BY index FOR UPDATE""",
        [job_id, GroupState.READY.value],
    )
    return [ReadyGroup(*row) for row in await cursor.fetchall()]


async def batch_may_be_ready(connection: Connection, job_id: UUID, number: int, *, num_groups: int) -> bool:
    """Return whether the batch exists already or enough groups are ready for it."""
    cursor = await connection.execute(
        """SELECT EXISTS (SELECT FROM trajectory_batch WHERE job_id = %(job)s AND number = %(number)s)
               OR (SELECT count(*) FROM trajectory_group WHERE job_id = %(job)s AND state = %(ready)s) >= %(groups)s""",
        {"job": job_id, "number": number, "ready": GroupState.READY.value, "groups": num_groups},
    )
    row = await cursor.fetchone()
    assert row is not None
    return bool(row[0])


async def sessions_fresh_count(
    connection: Connection, group_ids: Sequence[UUID], *, oldest_allowed: int
) -> dict[UUID, int]:
    """Count, by group, the sessions with an outcome and without tokens of a version older than allowed."""
    cursor = await connection.execute(
        f"""SELECT s.group_id, count(*) FILTER (WHERE NOT EXISTS (
               SELECT FROM trajectory_node n WHERE n.month = s.month AND n.session_id = s.id AND NOT n.is_partial
                                               AND n.min_version < %s))
           FROM trajectory_session s
           WHERE s.group_id = ANY(%s) AND s.state = {_SESSION_CLOSED} AND s.reward IS NOT NULL GROUP BY s.group_id""",
        [oldest_allowed, list(group_ids)],
    )
    return dict(await cursor.fetchall())


async def batch_insert(
    connection: Connection,
    claims: PhaseClaims,
    batch: Batch,
    groups: Sequence[ReadyGroup] = (),
    replaced: Sequence[UUID] = (),
) -> bytes:
    """Store a batch and return its bytes.

    `groups` get its number as their batch, `replaced` (dropped groups) as the batch whose waste they are.
    """
    payload = batch_encode(batch)
    trained = batch.versions[batch.loss_mask != 0]
    await connection.execute(
        f"""INSERT INTO trajectory_batch (id, project_id, job_id, number, state, payload, payload_sha256,
               policy_version, num_groups, num_samples, num_tokens, num_trained_tokens, min_version,
               lease_phase_id, lease_fence, lease_expires_at, created_at)
           VALUES (%s, %s, %s, %s, {_BATCH_LEASED}, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,
                   now() + make_interval(secs => %s), now())""",
        [
            new_id(), claims.project_id, claims.job_id, batch.header.number, packed(payload),
            hashlib.sha256(payload).hexdigest(), batch.header.policy_version, batch.header.num_groups,
            batch.num_samples, len(batch.token_ids), int(batch.loss_mask.sum()), _oldest(trained), claims.phase_id,
            claims.fence, LEASE_S,
        ],
    )  # fmt: skip
    await connection.execute(
        "UPDATE trajectory_group SET batch_number = %s WHERE id = ANY(%s)",
        [batch.header.number, [group.group_id for group in groups]],
    )
    if replaced:
        await connection.execute(
            "UPDATE trajectory_group SET replaced_for = %s WHERE id = ANY(%s)",
            [batch.header.number, list(replaced)],
        )
    return payload


def _oldest(versions: NDArray[np.int32]) -> int | None:
    """Return the oldest version; None if no version of this job sampled the tokens."""
    oldest = int(versions.min())
    return oldest if oldest >= 0 else None


async def finished_sessions(
    connection: Connection, ids: Sequence[UUID], *, chosen: Sequence[UUID] | None = None
) -> list[list[FinishedSession]]:
    """Return for each group its sessions with an outcome, in a fixed order; they no longer change.

    `chosen` limits them to these sessions.
    """
    cursor = await connection.execute(
        f"""SELECT s.group_id, s.month, s.id, s.reward, coalesce(g.task->>'domain', ''), s.num_turns,
                  s.num_sampled_tokens, s.is_timeout
           FROM trajectory_session s JOIN trajectory_group g ON g.id = s.group_id
           WHERE s.group_id = ANY(%s) AND s.state = {_SESSION_CLOSED} AND s.reward IS NOT NULL
             AND (%s::uuid[] IS NULL OR s.id = ANY(%s))
           ORDER BY s.group_id, s.slot, s.attempt""",
        [list(ids), None if chosen is None else list(chosen), [] if chosen is None else list(chosen)],
    )
    rows = await cursor.fetchall()
    nodes, truncated = await _nodes(connection, [(row[1], row[2]) for row in rows])
    finished: dict[UUID, list[FinishedSession]] = {group_id: [] for group_id in ids}
    for group_id, _, session, reward, domain, num_turns, num_sampled_tokens, is_timeout in rows:
        finished[group_id].append(
            FinishedSession(
                reward=reward,
                nodes=nodes[session],
                domain=domain,
                num_turns=num_turns,
                num_sampled_tokens=num_sampled_tokens,
                is_truncated=session in truncated,
                is_timeout=is_timeout,
            )
        )
    return list(finished.values())


async def _nodes(
    connection: Connection, keys: Sequence[tuple[date, UUID]]
) -> tuple[dict[UUID, list[Node]], set[UUID]]:
    """Read the sessions' nodes as training needs them (no messages, no digests), and which sessions were truncated."""
    cursor = await connection.execute(
        """SELECT n.session_id, n.node_index, n.parent_index, n.kind, coalesce(n.token_ids, p.token_ids), n.logprobs,
                  n.version_spans, n.loss_mask, n.is_partial, coalesce(n.finish_reason = 'length', false),
                  n.flags->%s::text
           FROM trajectory_node n LEFT JOIN trajectory_prompt p ON p.id = n.prompt_id
           WHERE n.month = ANY(%s) AND n.session_id = ANY(%s) ORDER BY n.session_id, n.node_index""",
        [GUIDE_FLAG, list({month for month, _ in keys}), [session for _, session in keys]],
        binary=True,
    )
    found: dict[UUID, list[Node]] = {session: [] for _, session in keys}
    truncated: set[UUID] = set()
    for (
        session,
        index,
        parent,
        kind,
        ids,
        logprobs,
        spans,
        mask,
        is_partial,
        is_cut,
        guide,
    ) in await cursor.fetchall():
        nodes = found[session]
        if is_cut and not is_partial:
            truncated.add(session)
        token_ids = unpacked(ids) if ids is not None else b""
        node = Node(
            index=index,
            parent=parent,
            kind=NodeKind(kind),
            token_ids=token_ids,
            digests=(),
            num_path_tokens=len(token_ids) // TOKEN_BYTES
            + (nodes[parent].num_path_tokens if parent is not None else 0),
            logprobs=unpacked(logprobs) if logprobs is not None else b"",
            spans=tuple(spans or ()),
            loss_mask=mask,
            is_partial=is_partial,
            guided=stored_guide(guide, nodes),
        )
        nodes.append(node)
    return found, truncated
