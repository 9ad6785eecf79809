"""Rows of numbered batches: the same number always gives the same bytes, until a durable checkpoint contains it."""

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
from seamlessflow.data_plane.store.connection import Connection, named_rows, new_id
from seamlessflow.data_plane.store.turns.node_rows import GUIDE_FLAG, stored_guide
from seamlessflow.data_plane.store.values import packed, unpacked
from seamlessflow.runtime.sql import statements

LEASE_S = 600.0
SQL = statements(__name__, BatchState, GroupState, SessionState)


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
    values = {"job": job_id, "applied": request.applied_batch, "durable": request.durable_batch}
    await connection.execute(SQL["apply"], values)
    await connection.execute(SQL["forget"], values)


async def batches_applied_note(connection: Connection) -> None:
    """Mark batches that are in published weights as applied, even if no trainer asks for the next one."""
    BATCH_MOVES.check(BatchState.LEASED, BatchState.APPLIED)
    await connection.execute(SQL["apply_published"])


async def batch_release(connection: Connection, claims: PhaseClaims, number: int) -> bytes | None:
    """Lease a batch to this phase and return its bytes; None if the batch does not exist yet or has lost its bytes."""
    values = {"job": claims.job_id, "number": number, **_lease(claims)}
    rows = await named_rows(connection, SQL["lease"], values)
    return unpacked(rows[0].payload) if rows else None


def _lease(claims: PhaseClaims) -> dict[str, object]:
    return {"phase": claims.phase_id, "fence": claims.fence, "lease_s": LEASE_S}


async def groups_ready(connection: Connection, job_id: UUID) -> list[ReadyGroup]:
    """Lock the ready groups and return them, oldest first."""
    return [
        ReadyGroup(**row._asdict()) for row in await named_rows(connection, SQL["ready"], {"job": job_id})
    ]


async def batch_may_be_ready(connection: Connection, job_id: UUID, number: int, *, num_groups: int) -> bool:
    """Return whether the batch exists already or enough groups are ready for it."""
    values = {"job": job_id, "number": number, "num_groups": num_groups}
    (row,) = await named_rows(connection, SQL["may_be_ready"], values)
    return bool(row.may_be_ready)


async def sessions_fresh_count(
    connection: Connection, group_ids: Sequence[UUID], *, oldest_allowed: int
) -> dict[UUID, int]:
    """Count, by group, the sessions with an outcome and without tokens of a version older than allowed."""
    rows = await named_rows(connection, SQL["fresh"], {"oldest": oldest_allowed, "groups": list(group_ids)})
    return {row.group_id: row.num_fresh for row in rows}


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
        SQL["insert"],
        {
            "id": new_id(), "project": claims.project_id, "job": claims.job_id, "number": batch.header.number,
            "payload": packed(payload), "sha256": hashlib.sha256(payload).hexdigest(),
            "policy_version": batch.header.policy_version, "num_groups": batch.header.num_groups,
            "num_samples": batch.num_samples, "num_tokens": len(batch.token_ids),
            "num_trained": int(batch.loss_mask.sum()), "min_version": _oldest(trained), **_lease(claims),
        },
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
    values = {"groups": list(ids), "chosen": None if chosen is None else list(chosen)}
    rows = await named_rows(connection, SQL["finished"], values)
    nodes, truncated = await _nodes(connection, [(row.month, row.id) for row in rows])
    finished: dict[UUID, list[FinishedSession]] = {group_id: [] for group_id in ids}
    for row in rows:
        finished[row.group_id].append(
            FinishedSession(
                reward=row.reward,
                nodes=nodes[row.id],
                domain=row.domain,
                num_turns=row.num_turns,
                num_sampled_tokens=row.num_sampled_tokens,
                is_truncated=row.id in truncated,
                is_timeout=row.is_timeout,
            )
        )
    return list(finished.values())


async def _nodes(
    connection: Connection, keys: Sequence[tuple[date, UUID]]
) -> tuple[dict[UUID, list[Node]], set[UUID]]:
    """Read the sessions' nodes as training needs them (no messages, no digests), and which sessions were truncated."""
    values = {
        "flag": GUIDE_FLAG,
        "months": list({month for month, _ in keys}),
        "sessions": [session for _, session in keys],
    }
    found: dict[UUID, list[Node]] = {session: [] for _, session in keys}
    truncated: set[UUID] = set()
    for row in await named_rows(connection, SQL["nodes"], values, binary=True):
        nodes = found[row.session_id]
        if row.is_cut and not row.is_partial:
            truncated.add(row.session_id)
        token_ids = unpacked(row.token_ids) if row.token_ids is not None else b""
        num_before = nodes[row.parent_index].num_path_tokens if row.parent_index is not None else 0
        node = Node(
            index=row.node_index,
            parent=row.parent_index,
            kind=NodeKind(row.kind),
            token_ids=token_ids,
            digests=(),
            num_path_tokens=num_before + len(token_ids) // TOKEN_BYTES,
            logprobs=unpacked(row.logprobs) if row.logprobs is not None else b"",
            spans=tuple(row.version_spans or ()),
            loss_mask=row.loss_mask,
            is_partial=row.is_partial,
            guided=stored_guide(row.guide, nodes),
        )
        nodes.append(node)
    return found, truncated
