"""Which sessions of a group are young enough to train, judged by their oldest sampled token.

A session beyond the bound loses its tokens but keeps its outcome, which the others are compared with. So one very long
answer does not cost the group its other sessions.
"""

import dataclasses
from collections.abc import Sequence

from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.trajectory.version_spans import UNKNOWN_VERSION


def marked_stale(sessions: Sequence[FinishedSession], *, oldest_allowed: int) -> list[FinishedSession]:
    """Return the same sessions; those with a token sampled by an older version than allowed are marked as stale."""
    return [
        dataclasses.replace(session, is_stale=True) if _is_stale(session, oldest_allowed) else session
        for session in sessions
    ]


def _is_stale(session: FinishedSession, oldest_allowed: int) -> bool:
    versions = (version for node in session.nodes if not node.is_partial for version in node.spans[1::2])
    return any(UNKNOWN_VERSION < version < oldest_allowed for version in versions)
