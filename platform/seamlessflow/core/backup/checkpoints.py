"""Which checkpoints a job can go on from, given the record of one moment.

Enters: what the database's copy says of a job, and the batches whose checkpoints lie on disk. Leaves: those that fit,
or why none does. Invariant: a checkpoint fits only if the record holds, or will make anew, every batch behind it, and
holds every batch that is in it: one ahead of the record has weights of batches that nobody knows, one too far behind
needs batches whose bytes were forgotten.
"""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job that has not ended, as the database's copy has it.

    `published`: the last batch that is in a published version. `forgotten`: the last one whose bytes are gone.
    `handed_out`: the last one that exists at all. Without any each is 0.
    """

    published: int
    forgotten: int
    handed_out: int


def fitting_checkpoints(record: JobRecord, on_disk: Collection[int]) -> list[int]:
    """Of these batches those whose checkpoints fit, in order."""
    # One batch may be in weights that were saved and not yet announced.
    newest = min(record.published + 1, record.handed_out)
    return sorted(batch for batch in on_disk if record.forgotten <= batch <= newest)


def checkpoint_fault(record: JobRecord, on_disk: Collection[int]) -> str:
    """Why the job cannot go on; empty if it can. A job that forgot nothing begins anew without a checkpoint."""
    if record.forgotten == 0 or fitting_checkpoints(record, on_disk):
        return ""
    found = ", ".join(str(batch) for batch in sorted(on_disk)) or "none"
    return (
        f"no checkpoint of batch {record.forgotten} to {min(record.published + 1, record.handed_out)} is there "
        f"(found: {found}), and the bytes of batches up to {record.forgotten} are gone"
    )
