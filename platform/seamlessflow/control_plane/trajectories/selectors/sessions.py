"""Reads rollout groups, sessions and their token trees, limited to those that the caller may see.

Token arrays are stored as zstd frames of little-endian int32 (ids) and float32 (logprobs); here they become lists.
"""

import json
from dataclasses import dataclass
from datetime import date
from http import HTTPStatus
from typing import Any
from uuid import UUID

import numpy as np
import zstandard
from django.db import connection
from django.db.models import QuerySet

from seamlessflow.control_plane.accounts.selectors.access import Access
from seamlessflow.control_plane.common.errors import ApplicationError, not_found
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.trajectories.models import NodeKind, PromptContent, RolloutGroup, Session
from seamlessflow.core.types.ids import IdKind, show_id

MAX_NODES = 5000
_NODES = """
    SELECT node_index, parent_index, kind, prompt_id, num_tokens, version_spans, finish_reason, messages::text, drift,
           cause, turn_id, is_partial, flags, num_handovers, num_continuations, max_gap_s, duration_s,
           num_wasted_tokens, created_at, CASE WHEN %(with_tokens)s THEN token_ids END AS token_ids,
           CASE WHEN %(with_tokens)s THEN logprobs END AS logprobs
    FROM trajectory_node WHERE month = %(month)s AND session_id = %(session_id)s AND node_index >= %(from)s
    ORDER BY node_index LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Tokens `start` to `end` of a node were sampled by `version`; -1 means unknown and never trained."""

    start: int
    end: int
    version: int


def group_list(
    *, job: Job, state: str | None = None, evaluation: int | None = None
) -> QuerySet[RolloutGroup]:
    """List groups, newest first: those that train, or those that evaluate one version."""
    groups = RolloutGroup.objects.filter(job=job, evaluation_version=evaluation).order_by("-index")
    return groups if state is None else groups.filter(state=state)


def group_get_visible(*, access: Access, group_id: UUID) -> RolloutGroup:
    """Return the group. Raises ApplicationError (404) if it does not exist or the caller may not see it."""
    group = RolloutGroup.objects.filter(
        id=group_id, project_id__in=access.readable, job__deleted_at=None
    ).first()
    if group is None:
        raise not_found("group", show_id(IdKind.GROUP, group_id))
    return group


def group_session_list(*, group: RolloutGroup) -> QuerySet[Session]:
    return Session.objects.filter(group=group).order_by("slot", "attempt")


def session_get_visible(*, access: Access, session_id: UUID) -> Session:
    """Return the session. Raises ApplicationError (404) if it does not exist or the caller may not see it."""
    session = (
        Session.objects.filter(id=session_id, project_id__in=access.readable, job__deleted_at=None)
        .select_related("group", "job")
        .first()
    )
    if session is None:
        raise not_found("session", show_id(IdKind.SESSION, session_id))
    return session


def nodes_check(job: Job) -> None:
    """Raise ApplicationError (410) if retention or a person deleted the job's tokens and messages."""
    if job.trajectories_deleted_at is not None:
        raise ApplicationError(
            f"the tokens and messages of this job were deleted on {job.trajectories_deleted_at:%Y-%m-%d}; its "
            "groups, rewards and figures are kept",
            status=HTTPStatus.GONE,
        )


def session_node(*, session: Session, index: int) -> dict[str, Any]:
    """Return one node without its tokens. Raises ApplicationError (404)."""
    nodes = session_nodes(session=session, with_tokens=False, first=index, limit=1)
    if not nodes or nodes[0]["node_index"] != index:
        raise not_found("node", str(index))
    return nodes[0]


def session_nodes(
    *, session: Session, with_tokens: bool, first: int = 0, limit: int = MAX_NODES
) -> list[dict[str, Any]]:
    """Return at most `limit` nodes in order of their index, beginning with `first`. Raises ApplicationError (410)."""
    nodes_check(session.job)
    parameters: dict[str, date | UUID | int | bool] = {
        "month": session.month, "session_id": session.id, "from": first, "limit": limit, "with_tokens": with_tokens
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_NODES, parameters)
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    prompts = _prompts([row["prompt_id"] for row in rows if row["prompt_id"]]) if with_tokens else {}
    return [_node(row, prompts, with_tokens=with_tokens) for row in rows]


def version_spans_decode(flat: list[int] | None, *, num_tokens: int) -> list[VersionSpan]:
    """Decode stored spans: `[0, 3, 10, 4]` over 12 tokens gives tokens 0 to 10 of version 3, 10 to 12 of version 4."""
    pairs = list(zip((flat or [])[::2], (flat or [])[1::2], strict=True))
    ends = [*(start for start, _ in pairs[1:]), num_tokens][: len(pairs)]
    return [VersionSpan(start, end, version) for (start, version), end in zip(pairs, ends, strict=True)]


def _prompts(prompt_ids: list[UUID]) -> dict[UUID, bytes]:
    return {row.id: bytes(row.token_ids) for row in PromptContent.objects.filter(id__in=prompt_ids)}


def _node(row: dict[str, Any], prompts: dict[UUID, bytes], *, with_tokens: bool) -> dict[str, Any]:
    packed, logprobs = row.pop("token_ids"), row.pop("logprobs")
    # Django does not decode JSON columns of plain SQL.
    row["messages"], row["flags"] = (json.loads(row[name] or "null") for name in ("messages", "flags"))
    row["kind"] = NodeKind(row["kind"]).name.lower()
    row["versions"] = version_spans_decode(row.pop("version_spans"), num_tokens=row["num_tokens"])
    if with_tokens:
        packed = prompts.get(row["prompt_id"]) if packed is None else packed
        row["token_ids"] = [] if packed is None else _unpack(packed, "<i4")
        row["logprobs"] = [] if logprobs is None else _unpack(logprobs, "<f4")
    del row["prompt_id"]
    return row


def _unpack(packed: bytes, dtype: str) -> list[Any]:
    values: list[Any] = np.frombuffer(zstandard.decompress(bytes(packed)), dtype=dtype).tolist()
    return values
