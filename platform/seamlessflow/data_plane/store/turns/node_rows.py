"""Rows of `trajectory_node` and `trajectory_prompt`: values for a binary COPY, read back as tree nodes.

`flush` writes them. Invariant: the key (month, session, node_index) makes writing idempotent. A flush whose commit is
in doubt first checks which of its nodes are stored.
"""

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
from psycopg import adapters
from psycopg.types.json import Json, Jsonb, set_json_dumps, set_json_loads

from seamlessflow.core.guidance.record import GuideRecord
from seamlessflow.core.trajectory.messages import digest_without_text, message_digests
from seamlessflow.core.trajectory.prefix_tree import Drift, Node, NodeKind
from seamlessflow.core.trajectory.version_spans import spans_bounds
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.values import packed, unpacked

CONTEXT_FLAG = "context"  # in a root's flags: digest of tools and template arguments, hex
RESUMED_FLAG = "resumed"  # in an answer's flags: an earlier attempt of the slot sampled it
GUIDE_FLAG = "guide"  # in an answer's flags: the guide that it was sampled under
_PROMPT_COLUMNS = "id, project_id, job_id, digest, num_tokens, token_ids"
set_json_dumps(msgspec.json.encode)
set_json_loads(msgspec.json.decode)

COLUMNS = {
    "month": "date",
    "session_id": "uuid",
    "node_index": "int4",
    "project_id": "uuid",
    "job_id": "uuid",
    "parent_index": "int4",
    "kind": "int2",
    "prompt_id": "uuid",
    "num_tokens": "int4",
    "token_ids": "bytea",
    "logprobs": "bytea",
    "version_spans": "int4[]",
    "loss_mask": "bytea",
    "min_version": "int8",
    "max_version": "int8",
    "finish_reason": "text",
    "messages": "json",
    "drift": "text",
    "cause": "text",
    "turn_id": "uuid",
    "request_digest": "bytea",
    "is_partial": "bool",
    "flags": "jsonb",
    "num_handovers": "int4",
    "num_continuations": "int4",
    "max_gap_s": "float4",
    "duration_s": "float4",
    "num_wasted_tokens": "int4",
    "mean_logprob": "float4",
}
COLUMN_OIDS = [adapters.types.get_oid(kind) for kind in COLUMNS.values()]
COPY_NODES = f"COPY trajectory_node ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The parts of a node's row that its tree does not need."""

    messages: list[dict[str, Any]]
    turn_id: UUID
    finish_reason: str | None = None
    drift: Drift | None = None
    cause: str | None = None
    request_digest: bytes | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    num_handovers: int = 0
    num_continuations: int = 0
    max_gap_s: float | None = None
    duration_s: float | None = None
    num_wasted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Identifies the rows of a session; `month` is their partition. They are written under a gateway's `epoch`."""

    session_id: UUID
    month: datetime.date
    project_id: UUID
    job_id: UUID
    epoch: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class NodeRow:
    key: SessionKey
    node: Node
    facts: NodeFacts


def prompt_digest(token_ids: bytes) -> bytes:
    return hashlib.blake2b(token_ids, digest_size=16).digest()


def prompt_id(job_id: UUID, digest: bytes) -> UUID:
    """Return the id of a prompt within a job. It depends only on the content, so an insert needs no look-up."""
    return UUID(bytes=hashlib.blake2b(job_id.bytes + digest, digest_size=16).digest())


def prompts_statement(rows: Sequence[NodeRow], known: set[UUID]) -> str:
    """Return a statement that inserts the prompts of roots, except those in `known`, which are stored; "" if none."""
    fresh = {}
    for row in rows:
        if row.node.kind == NodeKind.ROOT:
            digest = prompt_digest(row.node.token_ids)
            identity = prompt_id(row.key.job_id, digest)
            if identity not in known:
                fresh[identity] = _prompt_values(row, identity, digest)
    if not fresh:
        return ""
    values = ", ".join(fresh[identity] for identity in sorted(fresh))
    return f"INSERT INTO trajectory_prompt ({_PROMPT_COLUMNS}) VALUES {values} ON CONFLICT DO NOTHING"  # noqa: S608


def _prompt_values(row: NodeRow, identity: UUID, digest: bytes) -> str:
    """Return the literals of a prompt's row: identifiers, a number and bytes, which need no quoting."""
    key, tokens = row.key, packed(row.node.token_ids)
    return (
        f"('{identity}', '{key.project_id}', '{key.job_id}', '\\x{digest.hex()}', {row.node.num_tokens}, "
        f"'\\x{tokens.hex()}')"
    )


async def nodes_present(connection: Connection, rows: Sequence[NodeRow]) -> set[tuple[UUID, int, UUID]]:
    """Return which of the nodes are stored already, as (session, index, turn)."""
    cursor = await connection.execute(
        """SELECT session_id, node_index, turn_id FROM trajectory_node
           WHERE month = ANY(%s) AND session_id = ANY(%s)""",
        [list({row.key.month for row in rows}), list({row.key.session_id for row in rows})],
    )
    return {(session, index, turn) for session, index, turn in await cursor.fetchall()}


async def nodes_read(
    connection: Connection, keys: Sequence[tuple[datetime.date, UUID]]
) -> dict[UUID, list[NodeRow]]:
    """Read all nodes of some sessions, in the order of their index."""
    cursor = await connection.execute(
        """SELECT n.month, n.session_id, n.project_id, n.job_id, n.node_index, n.parent_index, n.kind,
                  coalesce(n.token_ids, p.token_ids), n.logprobs, n.version_spans, n.loss_mask, n.messages, n.turn_id,
                  n.finish_reason, n.request_digest, n.is_partial, n.flags
           FROM trajectory_node n LEFT JOIN trajectory_prompt p ON p.id = n.prompt_id
           WHERE n.month = ANY(%s) AND n.session_id = ANY(%s) ORDER BY n.session_id, n.node_index""",
        [list({month for month, _ in keys}), [session for _, session in keys]],
        binary=True,
    )
    found: dict[UUID, list[NodeRow]] = {session: [] for _, session in keys}
    async for values in cursor:
        rows = found[values[1]]
        rows.append(_row(values, rows))
    return found


def node_values(row: NodeRow) -> tuple[object, ...]:
    """Return a node's values in the order of `COLUMNS`."""
    key, node, facts = row.key, row.node, row.facts
    is_root, is_sampled = node.kind == NodeKind.ROOT, node.kind == NodeKind.SAMPLED
    low, high = spans_bounds(node.spans)
    return (
        key.month,
        key.session_id,
        node.index,
        key.project_id,
        key.job_id,
        node.parent,
        int(node.kind),
        prompt_id(key.job_id, prompt_digest(node.token_ids)) if is_root else None,
        node.num_tokens,
        None if is_root else packed(node.token_ids),
        packed(node.logprobs) if is_sampled else None,
        list(node.spans) if is_sampled else None,
        node.loss_mask,
        low,
        high,
        facts.finish_reason,
        Json(facts.messages),
        facts.drift,
        facts.cause,
        facts.turn_id,
        facts.request_digest,
        node.is_partial,
        Jsonb(node_flags(row)),
        facts.num_handovers,
        facts.num_continuations,
        facts.max_gap_s,
        facts.duration_s,
        facts.num_wasted_tokens,
        _mean_logprob(node),
    )


def node_flags(row: NodeRow) -> dict[str, Any]:
    """Return the flags as they are stored: with those that the tree keeps in fields of its own."""
    flags = dict(row.facts.flags)
    if row.node.context:
        flags[CONTEXT_FLAG] = row.node.context.hex()
    if row.node.guided is not None:
        flags[GUIDE_FLAG] = msgspec.to_builtins(row.node.guided)
    return flags


def _mean_logprob(node: Node) -> float | None:
    """Return the mean logprob, which a forest shows when it is zoomed out and reads no tokens."""
    if not node.logprobs:
        return None
    logprobs = np.frombuffer(node.logprobs, dtype="<f4")
    return float(np.add.reduce(logprobs)) / len(logprobs)


def _row(values: tuple[Any, ...], earlier: Sequence[NodeRow]) -> NodeRow:
    (month, session, project, job, index, parent, kind, ids, logprobs, spans, mask, messages, turn, reason, digest,
     is_partial, flags) = values  # fmt: skip
    token_ids = unpacked(ids) if ids is not None else b""
    path_tokens = earlier[parent].node.num_path_tokens if parent is not None else 0
    node = Node(
        index=index,
        parent=parent,
        kind=NodeKind(kind),
        token_ids=token_ids,
        digests=message_digests(messages or ()),
        num_path_tokens=path_tokens + len(token_ids) // 4,
        context=bytes.fromhex(flags.get(CONTEXT_FLAG, "")),
        logprobs=unpacked(logprobs) if logprobs is not None else b"",
        spans=tuple(spans or ()),
        loss_mask=mask,
        is_partial=is_partial,
        guided=stored_guide(flags.get(GUIDE_FLAG), [row.node for row in earlier]),
        calls=digest_without_text(messages[0]) if kind == NodeKind.SAMPLED and messages else b"",
    )
    facts = NodeFacts(
        messages=messages or [], turn_id=turn, finish_reason=reason, request_digest=digest, flags=flags
    )
    return NodeRow(SessionKey(session, month, project, job), node, facts)


def stored_guide(stored: dict[str, Any] | None, earlier: Sequence[Node]) -> GuideRecord | None:
    """Return the guide in an answer's flags; the answers of a session share equal ones, which may be long."""
    if stored is None:
        return None
    guided = msgspec.convert(stored, GuideRecord)
    return next((node.guided for node in reversed(earlier) if node.guided == guided), guided)
