"""Reads what a phase or a session printed, by offset.

Offsets count the bytes of a stream from its beginning, whether they are kept or not. Invariant: a passage has no gap;
if it begins later than requested, it says how many bytes are missing before it.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from uuid import UUID

from django.db.models import F, QuerySet

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import LogChunk

MAX_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogPart:
    """A passage of a log. `text` begins at `offset`, `num_missing_bytes` after the requested one. `end`: bytes of the
    log.
    """

    offset: int
    next_offset: int
    num_missing_bytes: int
    end: int
    text: str  # bytes that are not UTF-8 become U+FFFD

    @property
    def truncated(self) -> bool:
        return self.next_offset < self.end


@dataclass(frozen=True, slots=True)
class PhaseLogPart(LogPart):
    """A passage of one of the streams of a phase."""

    streams: list[str]
    stream: str


def phase_log_read(*, phase: Phase, stream: str | None, offset: int) -> PhaseLogPart:
    """Read at most `MAX_READ_BYTES` from `offset` on, of the first stream by name if none is given."""
    of_phase = LogChunk.objects.filter(phase=phase, session_id=None)
    streams = sorted(of_phase.values_list("stream", flat=True).distinct())
    if stream is not None and streams and stream not in streams:
        raise field_error(
            "stream", f"{stream!r} is not a stream of this phase; accepted: {', '.join(streams)}"
        )
    chosen = stream or (streams[0] if streams else "")
    chunk = _read(of_phase.filter(stream=chosen), offset)
    return PhaseLogPart(**asdict(chunk), streams=streams, stream=chosen)


def session_log_read(*, session_id: UUID, offset: int) -> LogPart:
    """Read at most `MAX_READ_BYTES` from `offset` on."""
    return _read(LogChunk.objects.filter(session_id=session_id), offset)


def _read(log: QuerySet[LogChunk], offset: int) -> LogPart:
    chunks = log.annotate(end=F("offset") + F("num_bytes"))
    end = chunks.order_by("-offset").values_list("end", flat=True).first() or 0
    first = chunks.filter(end__gt=offset).order_by("offset").values_list("offset", flat=True).first()
    begin = offset if first is None else max(offset, first)
    data = b"".join(_touching(chunks.filter(end__gt=begin), begin))[:MAX_READ_BYTES]
    return LogPart(
        offset=begin,
        next_offset=begin + len(data),
        num_missing_bytes=begin - offset,
        end=end,
        text=data.decode(errors="replace"),
    )


def _touching(chunks: QuerySet[LogChunk], begin: int) -> Iterator[bytes]:
    """Yield the bytes kept from `begin` on, up to the next gap. `chunks`: those that end after `begin`."""
    near = chunks.filter(offset__lt=begin + MAX_READ_BYTES).order_by("offset")
    for offset, data in near.values_list("offset", "data"):
        if offset > begin:
            return
        yield bytes(data)[begin - offset :]
        begin = offset + len(data)
