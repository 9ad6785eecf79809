"""Reads the forest of a group: an overview of its nodes, and the tokens of some of them.

It returns nodes as packed columns (one COPY reads 30,000 nodes, without Python code per node), and new nodes of a live
forest as rows with the same content. A node never changes, so a client asks only for nodes that it lacks.
"""
# ruff: noqa: S608 - statements are put together from constants of this module, values are parameters

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import zstandard
from django.db import connection
from numpy.typing import NDArray

from seamlessflow.control_plane.trajectories.models import RolloutGroup, Session
from seamlessflow.core.algorithms.estimators import built_in_estimator, session_advantages
from seamlessflow.core.algorithms.options import AdvantageEstimator
from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.protocol.live_rows import NodeRow, SessionRow
from seamlessflow.core.types.ids import IdKind, show_id

MAX_PAGE_NODES = 50_000
MAX_PAGE_TOKENS = 65_536
MAX_NEW_NODES = 2_000  # sent in one tick
FINISH_REASONS = ("", "stop", "length", "tool_calls", "abort")
PARTIAL_BIT = 8  # in the column `marks`: finish reason in bits 0 to 2, then this, then hand-overs
HANDOVER_SHIFT = 4
# Integer and float columns of a page, in this order; all are four bytes wide, so a browser copies nothing.
COLUMNS = (
    "session", "index", "parent", "kind", "num_tokens", "min_version", "max_version", "prompt", "turn", "marks",
    "mean_logprob",
)  # fmt: skip
_MARKS = f"""
    (coalesce(array_position(ARRAY['stop', 'length', 'tool_calls', 'abort'], n.finish_reason), 0)
     + CASE WHEN n.is_partial THEN {PARTIAL_BIT} ELSE 0 END + (n.num_handovers << {HANDOVER_SHIFT}))
"""
# The first four bytes of the prompt's identifier, which is a digest, show which roots of a group are equal.
_PROMPT = "coalesce(('x' || left(n.prompt_id::text, 8))::bit(32)::int4, 0)"
# The last four bytes of the turn's identifier are random; in a session they show which growing answer this was.
_TURN = "('x' || right(n.turn_id::text, 8))::bit(32)::int4"
_ASKED = """
    unnest(%(sessions)s::uuid[], %(months)s::date[], %(from)s::int4[]) WITH ORDINALITY
    AS asked (session_id, month, first_index, ordinal)
    JOIN trajectory_node n
      ON n.session_id = asked.session_id AND n.month = asked.month AND n.node_index >= asked.first_index
"""
_COPY = f"""
    COPY (SELECT asked.ordinal::int4 - 1, n.node_index, coalesce(n.parent_index, -1), n.kind::int4, n.num_tokens,
                 coalesce(n.min_version, -1)::int4, coalesce(n.max_version, -1)::int4, {_PROMPT}, {_TURN},
                 {_MARKS}::int4, coalesce(n.mean_logprob, 'NaN')
          FROM {_ASKED} ORDER BY asked.ordinal, n.node_index LIMIT %(limit)s) TO STDOUT (FORMAT BINARY)
"""
_DETAILS = f"""
    SELECT asked.ordinal::int4 - 1, n.node_index, n.version_spans, n.flags->'handover_at'
    FROM {_ASKED}
    WHERE (asked.ordinal - 1, n.node_index) <= (%(last_session)s, %(last_index)s)
      AND (array_length(n.version_spans, 1) > 2 OR n.flags ? 'handover_at')
    ORDER BY asked.ordinal, n.node_index
"""
_NEW_NODES = f"""
    SELECT n.session_id, n.node_index, n.parent_index, n.kind, n.num_tokens, n.version_spans, n.mean_logprob,
           n.finish_reason, n.is_partial, n.num_handovers, n.flags->'handover_at', n.turn_id, {_PROMPT}
    FROM {_ASKED} ORDER BY asked.ordinal, n.node_index LIMIT %(limit)s
"""
_SESSIONS = """
    SELECT s.group_id, s.id, s.month, s.slot, s.attempt, s.state, s.reason, s.reward, s.is_timeout, s.is_late,
           s.num_turns, s.num_sampled_tokens, s.opened_at, s.closed_at, coalesce(n.num_nodes, 0) AS num_nodes
    FROM trajectory_session s
    LEFT JOIN LATERAL (SELECT max(node_index) + 1 AS num_nodes FROM trajectory_node n
                       WHERE n.month = s.month AND n.session_id = s.id) n ON true
    WHERE s.group_id = ANY(%s) ORDER BY s.group_id, s.slot, s.attempt
"""
_TOKENS = """
    SELECT n.node_index, n.num_tokens, coalesce(n.token_ids, p.token_ids), n.logprobs
    FROM trajectory_node n LEFT JOIN trajectory_prompt p ON p.id = n.prompt_id
    WHERE n.month = %s AND n.session_id = %s AND n.node_index >= %s ORDER BY n.node_index LIMIT %s
"""
# The header of binary COPY: signature, flags, and the length of an absent extension.
_COPY_HEAD_BYTES = 19
_COPY_ROW = np.dtype(
    [("num_fields", ">i2")]
    + [
        field
        for number, name in enumerate(COLUMNS)
        for field in ((f"length_{number}", ">i4"), (name, ">f4" if name == "mean_logprob" else ">i4"))
    ]
)


@dataclass(frozen=True, slots=True)
class ForestSession:
    """Where a session's nodes are stored, and how many there are. `row` is what people see."""

    session_id: UUID
    month: Any
    num_nodes: int
    row: SessionRow


@dataclass(frozen=True, slots=True)
class ForestPage:
    """Nodes in order; a session is its index in the requested list. `details` has the rest, which fits no column."""

    columns: Mapping[str, NDArray[Any]]
    details: list[list[Any]]  # [session, index, version spans, hand-overs]
    next: tuple[int, int] | None  # session and node that the next page begins with


@dataclass(frozen=True, slots=True)
class TokenPage:
    """Tokens of consecutive nodes of one session. `parts`: (node, first token, number of tokens)."""

    parts: list[tuple[int, int, int]]
    token_ids: bytes  # int32
    logprobs: bytes  # float32, NaN where nothing was sampled
    next: tuple[int, int] | None  # node and token


def forest_sessions(groups: Sequence[RolloutGroup]) -> dict[UUID, list[ForestSession]]:
    """Return each group's sessions in order of their slots. `group.job` must be loaded."""
    with connection.cursor() as cursor:
        cursor.execute(_SESSIONS, [[group.id for group in groups]])
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
    return {
        group.id: _with_advantages(group, [row for row in rows if row["group_id"] == group.id])
        for group in groups
    }


def forest_page(
    sessions: Sequence[ForestSession], *, start: tuple[int, int] = (0, 0), limit: int = MAX_PAGE_NODES
) -> ForestPage:
    """Return at most `limit` nodes, beginning with node `start[1]` of session `start[0]`."""
    parameters = _asked([(session, 0) for session in sessions]) | {"limit": limit + 1}
    parameters["from"] = [
        start[1] if ordinal == start[0] else 0 if ordinal > start[0] else 2**31 - 1
        for ordinal in range(len(sessions))
    ]
    with connection.cursor() as cursor:
        with cursor.copy(_COPY, parameters) as copy:
            raw = b"".join(copy)
        rows = np.frombuffer(raw, dtype=_COPY_ROW, offset=_COPY_HEAD_BYTES, count=_num_rows(raw))
        following = (int(rows["session"][limit]), int(rows["index"][limit])) if len(rows) > limit else None
        rows = rows[:limit]
        details: list[list[Any]] = []
        if len(rows):
            last = {"last_session": int(rows["session"][-1]), "last_index": int(rows["index"][-1])}
            cursor.execute(_DETAILS, parameters | last)
            details = [
                [ordinal, index, spans or [], json.loads(handovers or "[]")]
                for ordinal, index, spans, handovers in cursor.fetchall()
            ]
    columns = {name: rows[name].astype("<f4" if name == "mean_logprob" else "<i4") for name in COLUMNS}
    return ForestPage(columns, details, following)


def forest_nodes_new(heads: Sequence[tuple[ForestSession, int]]) -> list[NodeRow]:
    """Return the nodes of each session beyond the number that is given with it, as rows."""
    with connection.cursor() as cursor:
        cursor.execute(_NEW_NODES, _asked(heads) | {"limit": MAX_NEW_NODES})
        return [_node_row(values) for values in cursor.fetchall()]


def session_tokens(*, session: Session, node: int, start: int, limit: int = MAX_PAGE_TOKENS) -> TokenPage:
    """Return at most `limit` tokens, beginning with token `start` of node `node`."""
    parts: list[tuple[int, int, int]] = []
    ids: list[NDArray[np.int32]] = []
    logprobs: list[NDArray[np.float32]] = []
    following: tuple[int, int] | None = None
    num_left = limit
    for index, num_tokens, packed_ids, packed_logprobs in _token_rows(session, node):
        first = start if index == node else 0
        count = min(num_tokens - first, num_left)
        if count > 0:
            cut = slice(first, first + count)
            parts.append((index, first, count))
            ids.append(_unpacked(packed_ids, "<i4")[cut])
            is_sampled = packed_logprobs is not None
            logprobs.append(
                _unpacked(packed_logprobs, "<f4")[cut] if is_sampled else np.full(count, np.nan, "<f4")
            )
        num_left -= max(count, 0)
        if first + count < num_tokens or num_left <= 0:
            following = (index, first + count) if first + count < num_tokens else (index + 1, 0)
            break
    return TokenPage(
        parts,
        b"".join(chunk.tobytes() for chunk in ids),
        b"".join(chunk.tobytes() for chunk in logprobs),
        following,
    )


def _token_rows(session: Session, node: int) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    """Yield rows beginning with a node. Reads a few at a time, because only their tokens show how many are needed."""
    num_rows = 64
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_TOKENS, [session.month, session.id, node, num_rows])
            rows = cursor.fetchall()
        yield from rows
        if len(rows) < num_rows:
            return
        node = rows[-1][0] + 1


def _asked(heads: Sequence[tuple[ForestSession, int]]) -> dict[str, Any]:
    return {
        "sessions": [session.session_id for session, _ in heads],
        "months": [session.month for session, _ in heads],
        "from": [first for _, first in heads],
    }


def _num_rows(raw: bytes) -> int:
    """Return the number of rows between the header and the two bytes at the end of the copy."""
    return (len(raw) - _COPY_HEAD_BYTES - 2) // _COPY_ROW.itemsize


# Estimators that need only the rewards of one group.
_OF_THE_GROUP_ALONE = (AdvantageEstimator.GROUP, AdvantageEstimator.LEAVE_ONE_OUT)


def _with_advantages(group: RolloutGroup, rows: list[dict[str, Any]]) -> list[ForestSession]:
    """Add advantages, computed over the sessions that would train; in an open group they may still change."""
    trained = [row for row in rows if row["state"] == SessionState.CLOSED and row["reward"] is not None]
    algorithm = group.job.resolved_spec.algorithm
    is_held_out = group.evaluation_version is not None
    if is_held_out or algorithm.advantage not in _OF_THE_GROUP_ALONE or algorithm.is_kl_in_reward:
        return [_forest_session(row, None) for row in rows]
    rewards = np.array([row["reward"] for row in trained], dtype=np.float64)
    values = session_advantages(
        rewards,
        np.zeros(len(rewards), dtype=np.int32),
        built_in_estimator(AdvantageEstimator(algorithm.advantage), norm=algorithm.advantage_norm),
    )
    advantages = dict(zip([row["id"] for row in trained], values.tolist(), strict=True))
    return [_forest_session(row, advantages.get(row["id"])) for row in rows]


def _forest_session(row: dict[str, Any], advantage: float | None) -> ForestSession:
    closed_at = row["closed_at"]
    shown: SessionRow = {
        "id": show_id(IdKind.SESSION, row["id"]),
        "slot": row["slot"],
        "attempt": row["attempt"],
        "state": row["state"],
        "reason": row["reason"].strip().rpartition("\n")[2],
        "reward": row["reward"],
        "advantage": advantage,
        "is_timeout": row["is_timeout"],
        "is_late": row["is_late"],
        "num_turns": row["num_turns"],
        "num_sampled_tokens": row["num_sampled_tokens"],
        "num_nodes": row["num_nodes"],
        "opened_at": round(row["opened_at"].timestamp() * 1000),
        "closed_at": None if closed_at is None else round(closed_at.timestamp() * 1000),
    }
    return ForestSession(row["id"], row["month"], row["num_nodes"], shown)


def _node_row(values: tuple[Any, ...]) -> NodeRow:
    (session, index, parent, kind, num_tokens, spans, mean, reason, is_partial, num_handovers, handovers, turn,
     prompt) = values  # fmt: skip
    marks = FINISH_REASONS.index(reason or "") + PARTIAL_BIT * is_partial + (num_handovers << HANDOVER_SHIFT)
    return {
        "session": show_id(IdKind.SESSION, session),
        "index": index,
        "parent": parent,
        "kind": kind,
        "num_tokens": num_tokens,
        "spans": spans or [],
        "mean_logprob": mean,
        "marks": marks,
        "handover_at": json.loads(handovers or "[]"),
        "turn": str(turn),
        "prompt": prompt,
    }


def _unpacked(packed: bytes | None, dtype: str) -> NDArray[Any]:
    raw = b"" if packed is None else zstandard.decompress(bytes(packed))
    return np.frombuffer(raw, dtype=dtype)
