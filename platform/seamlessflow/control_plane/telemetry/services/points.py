"""Stores metric points and log chunks that workers send. Invariant: sending them again changes nothing."""

import math
from collections.abc import Mapping
from http import HTTPStatus
from uuid import UUID

from django.db import transaction
from django.db.models import F

from seamlessflow.control_plane.common.errors import ApplicationError, field_error
from seamlessflow.control_plane.common.files.json_values import text_fault
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import LogChunk, MetricPoint
from seamlessflow.core.telemetry.log_window import log_parts, log_tail_begin

MAX_METRIC_NAME_LENGTH = 120
MAX_METRICS = 1_000
MAX_STEP = 2**62
MAX_STREAM_LENGTH = 16
MAX_CHUNK_BYTES = 1024 * 1024
# How much is kept of a stream of a phase: its beginning and its end, because a crash is in the last lines.
LOG_HEAD_BYTES = 1024 * 1024
LOG_TAIL_BYTES = 15 * 1024 * 1024


def metrics_record(*, job_id: UUID, project_id: UUID, step: int, values: Mapping[str, float]) -> None:
    """Store points. The newest value of (job, name, step) wins; values that are not finite are left out."""
    if len(values) > MAX_METRICS or any(len(name) > MAX_METRIC_NAME_LENGTH for name in values):
        raise field_error(
            "metrics", f"at most {MAX_METRICS} names of {MAX_METRIC_NAME_LENGTH} characters are accepted"
        )
    fault = next(filter(None, map(text_fault, values)), None)
    if fault is not None:
        raise field_error("metrics", f"the name {fault}")
    if not 0 <= step < MAX_STEP:
        raise field_error("step", f"{step} is not accepted; accepted: a whole number from 0 to 2**62")
    points = [
        MetricPoint(job_id=job_id, project_id=project_id, name=name, step=step, value=value)
        for name, value in values.items()
        if math.isfinite(value)
    ]
    MetricPoint.objects.bulk_create(
        points, update_conflicts=True, unique_fields=["job", "name", "step"], update_fields=["value"]
    )


def log_append(*, phase: Phase, stream: str, offset: int, data: bytes, num_lost: int = 0) -> int:
    """Store the new bytes of a chunk; return the offset from which the sender continues.

    `num_lost`: the sender no longer has this many bytes before `offset`, so nothing waits for them.
    """
    if not 0 < len(stream) <= MAX_STREAM_LENGTH or not stream.isprintable():
        raise field_error("stream", f"{stream!r} is not a name of 1 to {MAX_STREAM_LENGTH} characters")
    if len(data) > MAX_CHUNK_BYTES:
        raise ApplicationError(
            f"a log chunk has at most {MAX_CHUNK_BYTES} bytes", status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        )
    with transaction.atomic():
        # This lock makes two senders of one stream take turns.
        Phase.objects.select_for_update(no_key=True).only("id").get(id=phase.id)
        end = _log_end(phase, stream)
        if offset - num_lost > end:
            return end
        begin = max(offset, end)
        fresh = data[begin - offset :]
        if not fresh:
            return end
        LogChunk.objects.bulk_create(
            LogChunk(
                project_id=phase.project_id,
                phase=phase,
                stream=stream,
                offset=at,
                num_bytes=len(chunk),
                data=chunk,
            )
            for at, chunk in log_parts(begin, fresh, head_bytes=LOG_HEAD_BYTES)
        )
        _log_trim(phase, stream, end=begin + len(fresh))
        return begin + len(fresh)


def _log_end(phase: Phase, stream: str) -> int:
    chunks = LogChunk.objects.filter(phase=phase, session_id=None, stream=stream)
    last = chunks.order_by("-offset").annotate(end=F("offset") + F("num_bytes")).values_list("end", flat=True)
    return next(iter(last[:1]), 0)


def _log_trim(phase: Phase, stream: str, *, end: int) -> None:
    """Delete the chunks that are neither head nor tail."""
    begin = log_tail_begin(end, head_bytes=LOG_HEAD_BYTES, tail_bytes=LOG_TAIL_BYTES)
    if begin > LOG_HEAD_BYTES:
        LogChunk.objects.filter(
            phase=phase, session_id=None, stream=stream, offset__gte=LOG_HEAD_BYTES, offset__lt=begin
        ).delete()
