"""Finds the last line that a failed session printed, which usually says what its agent failed of."""

from collections.abc import Sequence
from uuid import UUID

from seamlessflow.control_plane.telemetry.models import LogChunk
from seamlessflow.control_plane.trajectories.models import Session
from seamlessflow.core.lifecycle.groups import SessionState

MAX_CHARACTERS = 300


def last_lines_get(sessions: Sequence[Session]) -> dict[UUID | None, str]:
    """Return the last line by session, of those that failed and printed something."""
    failed = [session.id for session in sessions if session.state == SessionState.FAILED]
    chunks = LogChunk.objects.filter(session_id__in=failed).order_by("session_id", "-offset")
    newest = chunks.distinct("session_id").values_list("session_id", "data")
    return {session_id: line for session_id, data in newest if (line := _last_line(bytes(data)))}


def _last_line(data: bytes) -> str:
    lines = data.rstrip().splitlines()
    return lines[-1].decode("utf-8", "replace").strip()[:MAX_CHARACTERS] if lines else ""
