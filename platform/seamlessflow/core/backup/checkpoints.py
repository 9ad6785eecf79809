"""Which checkpoints a job can continue from, given the record of one moment.

Takes the database copy's facts about a job and the batches whose checkpoints are on disk; returns those that fit, or
why none does. Invariant: a checkpoint fits only if the record has every batch in it, and has or will create again
every batch after it. One ahead of the record has weights of batches that no record has; one too far behind needs
batches whose bytes were deleted.
"""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job that has not ended, as the database's copy has it.

    `published`: the last batch in a published version. `forgotten`: the last one whose bytes are deleted. `handed_out`:
    the last one that exists at all. Each is 0 if there is none.
    """

    published: int
    forgotten: int
    handed_out: int


def fitting_checkpoints(record: JobRecord, on_disk: Collection[int]) -> list[int]:
    """Return the batches among these whose checkpoints fit, in order."""
    # The weights of one more batch may be saved but not yet announced.
    newest = min(record.published + 1, record.handed_out)
    return sorted(batch for batch in on_disk if record.forgotten <= batch <= newest)


def checkpoint_fault(record: JobRecord, on_disk: Collection[int]) -> str:
    """Return why the job cannot continue; empty if it can. A job none of whose bytes were deleted can start again
    without a checkpoint."""
    if record.forgotten == 0 or fitting_checkpoints(record, on_disk):
        return ""
    found = ", ".join(str(batch) for batch in sorted(on_disk)) or "none"
    return (
        f"there is no checkpoint of batch {record.forgotten} to {min(record.published + 1, record.handed_out)} "
        f"(found: {found}), and the bytes of batches up to {record.forgotten} are gone"
    )
