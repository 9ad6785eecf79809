"""Reads how turns joined their sessions' trees: session by session, or added up for a whole job.

Both follow the rule of `core.trajectory.joins`. A job's turns are counted by the database, because there may be
millions; none of the statements reads tokens or messages.
"""

from collections.abc import Sequence
from typing import TypedDict
from uuid import UUID

from django.db import connection

from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.trajectories.models import NodeKind, Session
from seamlessflow.core.trajectory.joins import FIRST_CAUSES, JoinNode, Joins, joins_of, session_joins
from seamlessflow.core.trajectory.prefix_tree import ForkCause

_NODES = """
    SELECT session_id, node_index, parent_index, kind, turn_id, is_partial, cause FROM trajectory_node
    WHERE month = ANY(%(months)s) AND session_id = ANY(%(sessions)s)
"""
_JOB_COUNTS = """
    SELECT p.cause, p.parent_index IS NULL, count(*), coalesce(sum(t.num_turns - 1), 0)
    FROM (SELECT month, session_id, parent_index, count(DISTINCT turn_id) AS num_turns FROM trajectory_node
          WHERE job_id = %(job)s AND kind = %(sampled)s AND NOT is_partial
          GROUP BY month, session_id, parent_index) t
    JOIN trajectory_node p ON p.month = t.month AND p.session_id = t.session_id AND p.node_index = t.parent_index
    WHERE p.job_id = %(job)s GROUP BY 1, 2
"""


class JoinsRow(TypedDict):
    """`Joins` with the lower-case names of the causes, as the API shows and summaries keep them."""

    num_clean: int
    num_turns: int
    causes: dict[str, int]
    num_conversations: int | None  # None: the summary was kept before they were counted


def session_joins_get(sessions: Sequence[Session], *, job: Job) -> dict[UUID, JoinsRow]:
    """Count the joins of each of the job's sessions, with one statement; of none if its trajectories were deleted."""
    if job.trajectories_deleted_at is not None:
        return {}
    nodes: dict[UUID, list[JoinNode]] = {session.id: [] for session in sessions}
    months = list({session.month for session in sessions})
    with connection.cursor() as cursor:
        cursor.execute(_NODES, {"months": months, "sessions": list(nodes)})
        for session, index, parent, kind, turn, is_partial, cause in cursor.fetchall():
            nodes[session].append(
                JoinNode(index, parent, kind == NodeKind.SAMPLED, turn, is_partial, _cause(cause))
            )
    return {session: _row(session_joins(of_session)) for session, of_session in nodes.items()}


def job_joins(job: Job) -> JoinsRow:
    """Add up the joins of all sessions of a job, evaluations included."""
    parameters: dict[str, UUID | int] = {"job": job.id, "sampled": NodeKind.SAMPLED.value}
    with connection.cursor() as cursor:
        cursor.execute(_JOB_COUNTS, parameters)
        rows = [
            (_cause(cause), is_root, number, int(repeats))
            for cause, is_root, number, repeats in cursor.fetchall()
        ]
    begun = [number for cause, is_root, number, _ in rows if is_root and cause in FIRST_CAUSES]
    counts = [
        (cause, number) for cause, is_root, number, _ in rows if not (is_root and cause in FIRST_CAUSES)
    ]
    return _row(joins_of([*counts, (ForkCause.REPEAT, sum(row[3] for row in rows))], sum(begun)))


def _row(joins: Joins) -> JoinsRow:
    causes = {cause.name.lower(): number for cause, number in joins.causes.items()}
    return JoinsRow(
        num_clean=joins.num_clean,
        num_turns=joins.num_turns,
        causes=causes,
        num_conversations=joins.num_conversations,
    )


def _cause(stored: str | None) -> ForkCause | None:
    return None if stored is None else ForkCause(stored)
