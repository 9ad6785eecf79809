"""Stores ledger intervals.

Takes a machine's intervals on its monotonic clock, with the server's time at that clock's zero; writes rows.
Invariant: the rows of a machine touch and never overlap, from its first interval on. The server fills time that no
report covers as down or unknown (`boot_id` null). Sending an interval again changes nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.telemetry.models import LedgerInterval
from seamlessflow.core.protocol.worker import Interval
from seamlessflow.core.types.ledger import LedgerState

# A restart takes less time; a longer silence means that the machine was down.
SHORT_GAP = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class Boot:
    """One run of a supervisor. `anchor_at` is fixed for the boot, so intervals that touch there touch here as well."""

    machine_id: UUID
    boot_id: UUID
    anchor_at: datetime

    def moment(self, monotonic_s: float) -> datetime:
        return self.anchor_at + timedelta(seconds=monotonic_s)


def ledger_extend(*, boot: Boot, intervals: Sequence[Interval], num_acked: int) -> int:
    """Store the intervals that follow `num_acked`; return the new number of stored intervals."""
    fresh = sorted((item for item in intervals if item.seq >= num_acked), key=lambda item: item.seq)
    if not fresh:
        return num_acked
    jobs = _jobs(item.job_id for item in fresh)
    rows = [_row(boot, item, jobs) for item in fresh]
    touching = _touching(rows, end_at=ledger_end(machine_id=boot.machine_id))
    # A conflict is a second supervisor under the same name; what is stored stays.
    LedgerInterval.objects.bulk_create(touching, ignore_conflicts=True)
    return fresh[-1].seq + 1


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


def _touching(rows: Iterable[LedgerInterval], *, end_at: datetime | None) -> Iterator[LedgerInterval]:
    """Clip intervals that overlap, and fill gaps."""
    for row in rows:
        if end_at is not None:
            if row.started_at > end_at:
                yield _filler(row, end_at)
            else:
                row.started_at = end_at
        if row.ended_at > row.started_at:
            yield row
            end_at = row.ended_at


def _filler(row: LedgerInterval, end_at: datetime) -> LedgerInterval:
    is_short = row.started_at - end_at < SHORT_GAP
    return LedgerInterval(
        machine_id=row.machine_id,
        state=LedgerState.UNKNOWN if is_short else LedgerState.DOWN,
        started_at=end_at,
        ended_at=row.started_at,
    )


def _row(boot: Boot, item: Interval, jobs: dict[UUID, tuple[UUID, int]]) -> LedgerInterval:
    # The job may have been deleted meanwhile.
    project_id, num_slots = jobs.get(item.job_id, (None, None)) if item.job_id else (None, None)
    return LedgerInterval(
        machine_id=boot.machine_id,
        boot_id=boot.boot_id,
        seq=item.seq,
        state=item.state,
        cause=item.cause or "",
        job_id=None if project_id is None else item.job_id,
        project_id=project_id,
        started_at=boot.moment(item.start_s),
        ended_at=boot.moment(item.end_s),
        mean_in_flight=item.mean_in_flight,
        num_slots=num_slots if item.state is LedgerState.SERVING else None,
    )


def _jobs(job_ids: Iterable[UUID | None]) -> dict[UUID, tuple[UUID, int]]:
    """Return each job's project, and how many requests one of its engines decodes at once."""
    wanted = {job_id for job_id in job_ids if job_id is not None}
    if not wanted:
        return {}
    rows = Job.objects.filter(id__in=wanted).values_list("id", "project_id", "spec__rollout__max_num_seqs")
    return {job_id: (project_id, num_slots) for job_id, project_id, num_slots in rows}
