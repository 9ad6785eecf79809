"""The queue as one caller may see it: why jobs wait, who holds the machines, and what would help.

Takes an `Access`; reads one snapshot, or the one that is kept, and the caller's jobs in it. Invariants: jobs of
projects that the caller may not read are never named, and only operators see pools that a project may not use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.control_plane.accounts.selectors.access import Access
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.selectors.previews import HIDDEN_JOB
from seamlessflow.control_plane.scheduling.selectors.queue_keeper import KEEPER
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.scheduling.explain.queue import Holder, QueueEntry, Shortage
from seamlessflow.core.scheduling.explain.queue_text import (
    holder_sentence,
    lack_sentence,
    shortage_sentence,
    unblock_sentence,
)
from seamlessflow.core.scheduling.explain.unblocks import (
    EVERY_KIND,
    OPEN_KINDS,
    Unblock,
    UnblockKind,
)
from seamlessflow.core.scheduling.snapshot import JobView


@dataclass(frozen=True, slots=True)
class ShownHolder:
    holder: Holder
    job: JobView | None  # None: no job has the machine, or one of another project
    sentence: str


@dataclass(frozen=True, slots=True)
class ShownShortage:
    shortage: Shortage
    holders: list[ShownHolder]
    sentence: str


@dataclass(frozen=True, slots=True)
class ShownUnblock:
    offer: Unblock
    may_do: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class ShownEntry:
    entry: QueueEntry
    job: Job
    may_edit: bool
    sentence: str
    shortages: list[ShownShortage]
    unblocks: list[ShownUnblock]


class VisibleQueue:
    """The queue of the projects that the caller may read. `entries`: theirs, in order; `show` explains some of them."""

    def __init__(self, access: Access, project_ids: frozenset[UUID]) -> None:
        self._access = access
        self._kept = KEEPER.current()
        self._queue = self._kept.queue
        self.entries = [entry for entry in self._queue.entries if entry.job.project_id in project_ids]

    def show(self, entries: Sequence[QueueEntry]) -> list[ShownEntry]:
        """Explain entries. A job that was deleted since the snapshot is left out."""
        rows = Job.objects.filter(id__in=[entry.job.id for entry in entries], deleted_at=None)
        jobs = {job.id: job for job in rows.select_related("project", "created_by")}
        return [self._shown(entry, jobs) for entry in entries if entry.job.id in jobs]

    def _shown(self, entry: QueueEntry, jobs: Mapping[UUID, Job]) -> ShownEntry:
        job, access = jobs[entry.job.id], self._access
        may_edit = access.may(Operation.JOB_EDIT, job.project_id, author_id=job.created_by_id)
        kinds = EVERY_KIND if access.is_operator else OPEN_KINDS
        offers = self._kept.unblocks(entry, kinds)
        return ShownEntry(
            entry=entry,
            job=job,
            may_edit=may_edit,
            sentence=lack_sentence(entry),
            shortages=[self._shown_shortage(one) for one in self._queue.shortages(entry)],
            unblocks=[
                ShownUnblock(
                    offer,
                    may_do=self._may_do(offer, may_edit=may_edit),
                    sentence=unblock_sentence(offer, entry, self._name_of),
                )
                for offer in offers
            ],
        )

    def _shown_shortage(self, shortage: Shortage) -> ShownShortage:
        holders = [
            ShownHolder(
                one, one.job if self._may_name(one.job) else None, holder_sentence(one, self._name_of)
            )
            for one in shortage.holders
        ]
        return ShownShortage(shortage, holders, shortage_sentence(shortage))

    def _may_do(self, offer: Unblock, *, may_edit: bool) -> bool:
        match offer.kind:
            case UnblockKind.WAIT:
                return True
            case UnblockKind.PRIORITY:
                return may_edit
            case UnblockKind.RETAG | UnblockKind.QUOTA | UnblockKind.GRANT:
                return self._access.is_operator

    def _may_name(self, job: JobView | None) -> bool:
        return job is not None and job.project_id in self._access.readable

    def _name_of(self, job: JobView) -> str:
        return f'the job "{job.name}"' if self._may_name(job) else HIDDEN_JOB
