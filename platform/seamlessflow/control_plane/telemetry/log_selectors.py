"""Reading a phase's output by offset."""

from dataclasses import dataclass

from django.db.models import F

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import LogChunk

MAX_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogPart:
    streams: list[str]
    stream: str
    offset: int
    next_offset: int
    text: str  # bytes that are no UTF-8 are shown as U+FFFD


def log_read(*, phase: Phase, stream: str | None, offset: int) -> LogPart:
    """At most `MAX_READ_BYTES` from `offset` on; the first stream by name if none is given."""
    streams = sorted(LogChunk.objects.filter(phase=phase).values_list("stream", flat=True).distinct())
    if stream is not None and streams and stream not in streams:
        raise field_error(
            "stream", f"{stream!r} is not a stream of this phase; accepted: {', '.join(streams)}"
        )
    chosen = stream or (streams[0] if streams else "")
    data = b"".join(_chunks(phase, chosen, offset))[:MAX_READ_BYTES]
    return LogPart(streams, chosen, offset, offset + len(data), data.decode(errors="replace"))


def _chunks(phase: Phase, stream: str, offset: int) -> list[bytes]:
    """Chunks from `offset` on, the first one cut to begin there."""
    rows = (
        LogChunk.objects.filter(phase=phase, stream=stream)
        .annotate(end=F("offset") + F("num_bytes"))
        .filter(end__gt=offset, offset__lt=offset + MAX_READ_BYTES)
        .order_by("offset")
        .values_list("offset", "data")
    )
    return [bytes(data)[max(offset - begin, 0) :] for begin, data in rows]
