"""Storing metric points and log chunks that workers send. Invariant: sending again changes nothing."""

import math
from collections.abc import Mapping
from http import HTTPStatus
from uuid import UUID

from django.db import transaction
from django.db.models import F

from seamlessflow.control_plane.common.errors import ApplicationError, field_error
from seamlessflow.control_plane.common.json_values import text_fault
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import LogChunk, MetricPoint

MAX_METRIC_NAME_LENGTH = 120
MAX_METRICS = 1_000
MAX_STEP = 2**62
MAX_STREAM_LENGTH = 16
MAX_CHUNK_BYTES = 1024 * 1024
# Of one stream of one phase; its head is kept, since failures at the start explain most.
MAX_LOG_BYTES = 16 * 1024 * 1024


def metrics_record(*, job_id: UUID, project_id: UUID, step: int, values: Mapping[str, float]) -> None:
    """Store points; the newest value of (job, name, step) wins, values that are not finite are left out."""
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


def log_append(*, phase: Phase, stream: str, offset: int, data: bytes) -> int:
    """Store what is new of a chunk; return the offset from which the sender goes on."""
    if not 0 < len(stream) <= MAX_STREAM_LENGTH or not stream.isprintable():
        raise field_error("stream", f"{stream!r} is not a name of 1 to {MAX_STREAM_LENGTH} characters")
    if len(data) > MAX_CHUNK_BYTES:
        raise ApplicationError(
            f"a log chunk holds at most {MAX_CHUNK_BYTES} bytes", status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        )
    with transaction.atomic():
        # Two senders of one stream wait for each other here.
        Phase.objects.select_for_update(no_key=True).only("id").get(id=phase.id)
        end = _log_end(phase, stream)
        if end >= MAX_LOG_BYTES:
            return offset + len(data)
        if offset > end:
            return end
        fresh = data[end - offset :][: MAX_LOG_BYTES - end]
        if fresh:
            LogChunk.objects.create(
                project_id=phase.project_id,
                phase=phase,
                stream=stream,
                offset=end,
                num_bytes=len(fresh),
                data=fresh,
            )
        return (
            max(end + len(fresh), offset + len(data))
            if end + len(fresh) >= MAX_LOG_BYTES
            else end + len(fresh)
        )


def _log_end(phase: Phase, stream: str) -> int:
    chunks = LogChunk.objects.filter(phase=phase, stream=stream)
    last = chunks.order_by("-offset").annotate(end=F("offset") + F("num_bytes")).values_list("end", flat=True)
    return next(iter(last[:1]), 0)
