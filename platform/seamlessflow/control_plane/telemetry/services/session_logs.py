"""Stores what sessions have printed, as their runner reports it.

In: the head and the tail of each log so far. Out: at most two chunks a session. Invariants: reporting a log again
changes nothing; one that is shorter than the stored one is ignored, as it is older; only sessions of the phase's own
job are stored.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import LogChunk
from seamlessflow.control_plane.trajectories.models import Session
from seamlessflow.core.environment.section import MAX_SESSION_LOG_BYTES
from seamlessflow.core.protocol.worker import SessionLog

MAX_LOGS = 256
STREAM = "session"


def session_logs_store(*, phase: Phase, logs: list[SessionLog]) -> None:
    """Replace the logs that have grown. Raises ApplicationError."""
    _check(logs)
    with transaction.atomic():
        # This lock makes two reports of one runner take turns.
        Phase.objects.select_for_update(no_key=True).only("id").get(id=phase.id)
        grown = _grown(phase, logs)
        LogChunk.objects.filter(session_id__in=[log.session_id for log in grown]).delete()
        LogChunk.objects.bulk_create(chunk for log in grown for chunk in _chunks(phase, log))


def _check(logs: list[SessionLog]) -> None:
    if len(logs) > MAX_LOGS or len({log.session_id for log in logs}) < len(logs):
        raise field_error("logs", f"at most {MAX_LOGS} logs of different sessions are accepted")
    for log in logs:
        size = len(log.head) + len(log.tail)
        if not size <= min(log.end, MAX_SESSION_LOG_BYTES) or log.end >= 2**62:
            raise field_error(
                "logs",
                f"{size} bytes of {log.end} are not accepted; accepted: at most {MAX_SESSION_LOG_BYTES}, and no more "
                "than were printed",
            )


def _grown(phase: Phase, logs: list[SessionLog]) -> list[SessionLog]:
    ids = [log.session_id for log in logs]
    of_job = set(Session.objects.filter(id__in=ids, job_id=phase.job_id).values_list("id", flat=True))
    chunks = LogChunk.objects.filter(session_id__in=ids).values("session_id").order_by()
    ends: dict[UUID | None, int] = dict(
        chunks.annotate(end=Max(F("offset") + F("num_bytes"))).values_list("session_id", "end")
    )
    return [log for log in logs if log.session_id in of_job and log.end > ends.get(log.session_id, 0)]


def _chunks(phase: Phase, log: SessionLog) -> Iterable[LogChunk]:
    for offset, data in _parts(log):
        yield LogChunk(
            project_id=phase.project_id,
            phase=phase,
            session_id=log.session_id,
            stream=STREAM,
            offset=offset,
            num_bytes=len(data),
            data=data,
        )


def _parts(log: SessionLog) -> Iterator[tuple[int, bytes]]:
    if log.head:
        yield 0, log.head
    if log.tail:
        yield log.end - len(log.tail), log.tail
