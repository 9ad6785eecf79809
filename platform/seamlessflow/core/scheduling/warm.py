"""Whose processes a machine keeps warm, and whose trainer leaves a checkpoint because its process may go.

Takes the jobs that may have processes on a machine. A job that works there comes first, then the one that follows, then
those whose trainer's state is there, because it is all that a process has and files have not; of equals the oldest job
comes first. So on a machine of many jobs the oldest trainers stay and the others change: if the one that was used least
recently left, jobs that train in turns would all start anew each time.

A trainer that waits for its next turn has left the accelerator, so it can save nothing. Whether it may be stopped
meanwhile is therefore decided before its turn ends: jobs that work here and follow here can push out all but the first
`MAX_WARM_JOBS - 2` of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

# Warm processes hold memory, so a machine keeps them for at most this many jobs, besides those whose agents it runs.
MAX_WARM_JOBS = 4


@dataclass(frozen=True, slots=True)
class WarmCandidate:
    """A running job that may have processes on the machine. `order`: the smaller number is the older job."""

    job_id: UUID
    order: float
    is_at_work: bool = False  # a phase of it is live here
    is_next: bool = False  # a phase of it follows here
    has_trainer_state: bool = False  # its last trainer ran here
    has_trained: bool = False  # somewhere
    runs_agents: bool = False  # and does nothing else here


def warm_choose(candidates: Sequence[WarmCandidate]) -> tuple[UUID, ...]:
    """Return the jobs whose processes are kept or started, the most urgent first."""
    room = MAX_WARM_JOBS + sum(one.runs_agents for one in candidates)
    return tuple(one.job_id for one in sorted(candidates, key=_rank)[:room])


def leaves_checkpoint(candidates: Sequence[WarmCandidate], job_id: UUID) -> bool:
    """Whether a trainer saves its progress at the end of its turn here."""
    trainer = next((one for one in candidates if one.job_id == job_id), None)
    if trainer is None:  # nothing may stay here, for example because the machine is cordoned
        return True
    candidates = [one for one in candidates if not one.runs_agents]
    if len(candidates) <= MAX_WARM_JOBS:
        return False
    before = sum(
        (one.order, one.job_id) < (trainer.order, job_id)
        for one in candidates
        if one.has_trainer_state or not one.has_trained  # who never trained may do so here
    )
    return before >= MAX_WARM_JOBS - 2


def _rank(one: WarmCandidate) -> tuple[bool, bool, bool, float, UUID]:
    return (not one.is_at_work, not one.is_next, not one.has_trainer_state, one.order, one.job_id)
