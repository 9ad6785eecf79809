"""Stores ledger intervals.

Takes a machine's intervals on its monotonic clock, with the server's time at that clock's zero; writes rows.
Invariant: the rows of a machine touch and never overlap, from its first interval on. The server fills time that no
report covers as down or unknown (`boot_id` null). Sending an interval again changes nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from django.db import connection

from seamlessflow.control_plane.jobs.selectors.jobs import specs_load
from seamlessflow.control_plane.telemetry.models import LedgerInterval
from seamlessflow.core.protocol.worker import Interval
from seamlessflow.core.types.ledger import LedgerState
from seamlessflow.runtime.sql import statements

# A restart takes less time; a longer silence means that the machine was down.
SHORT_GAP = timedelta(seconds=3)
# A machine's clock may run ahead of the server's by as much; later time is not over yet, whatever the machine says.
MAX_AHEAD = timedelta(seconds=10)
MAX_ENGINES = 1024  # of one machine; a machine that reports more is not believed


SQL = statements(__name__)


class _Row(msgspec.Struct, kw_only=True):
    boot_id: UUID | None = None
    seq: int | None = None
    state: LedgerState
    cause: str = ""
    job_id: UUID | None = None
    started_at: datetime
    ended_at: datetime
    mean_in_flight: float | None = None
    num_slots: int | None = None


@dataclass(frozen=True, slots=True)
class Boot:
    """One run of a supervisor. `anchor_at` is fixed for the boot, so intervals that touch there touch here as well."""

    machine_id: UUID
    boot_id: UUID
    anchor_at: datetime

    def moment(self, monotonic_s: float) -> datetime:
        return self.anchor_at + timedelta(seconds=monotonic_s)


def ledger_extend(
    *, boot: Boot, intervals: Sequence[Interval], num_stored: int, end_at: datetime | None, now: datetime
) -> None:
    """Store the intervals that follow the first `num_stored` of this boot. `end_at`: what `ledger_end` returns."""
    fresh = {item.seq: item for item in reversed(intervals) if item.seq >= num_stored}
    rows = list(
        _touching((_row(boot, fresh[seq]) for seq in sorted(fresh)), end_at=end_at, until=now + MAX_AHEAD)
    )
    if not rows:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            SQL["store"], {"machine": str(boot.machine_id), "rows": msgspec.json.encode(rows).decode()}
        )


def ledger_end(*, machine_id: UUID) -> datetime | None:
    """Return the moment up to which the machine's ledger is written; None if it is empty."""
    last = (
        LedgerInterval.objects.filter(machine_id=machine_id).order_by("-started_at").values_list("ended_at")
    )
    return next((ended_at for (ended_at,) in last[:1]), None)


def ledger_close(*, machine_id: UUID, boot_id: UUID, state: str, cause: str, until: datetime) -> None:
    """End the open interval of a boot that is over, at the machine's last heartbeat."""
    end_at = ledger_end(machine_id=machine_id)
    if end_at is None or not state or until <= end_at:
        return
    LedgerInterval.objects.create(
        machine_id=machine_id,
        boot_id=boot_id,
        state=state,
        cause=cause,
        started_at=end_at,
        ended_at=until,
    )


def _touching(rows: Iterable[_Row], *, end_at: datetime | None, until: datetime) -> Iterator[_Row]:
    """Clip intervals that overlap or are not over yet, and fill gaps."""
    for row in rows:
        row.ended_at = min(row.ended_at, until)
        if row.started_at >= row.ended_at:
            continue
        if end_at is not None:
            if row.started_at > end_at:
                yield _filler(end_at, row.started_at)
            else:
                row.started_at = end_at
        if row.ended_at > row.started_at:
            yield row
            end_at = row.ended_at


def _filler(begin: datetime, end: datetime) -> _Row:
    state = LedgerState.UNKNOWN if end - begin < SHORT_GAP else LedgerState.DOWN
    return _Row(state=state, started_at=begin, ended_at=end)


def _row(boot: Boot, item: Interval) -> _Row:
    return _Row(
        boot_id=boot.boot_id,
        seq=item.seq,
        state=item.state,
        cause=item.cause or "",
        job_id=item.job_id,
        started_at=boot.moment(item.start_s),
        ended_at=boot.moment(item.end_s),
        mean_in_flight=item.mean_in_flight,
        num_slots=_num_slots(item),
    )


def _num_slots(item: Interval) -> int | None:
    """Return how many requests the engines decode at once; None if nothing was served or the job is gone."""
    if item.state is not LedgerState.SERVING or item.job_id is None:
        return None
    resolved = specs_load([item.job_id]).get(item.job_id)
    return (
        None
        if resolved is None
        else resolved.spec.rollout.max_num_seqs * min(max(item.num_engines, 1), MAX_ENGINES)
    )
