"""How many new groups may begin: as many as the trainer needs, and never more than the staleness bound allows.

Every group that waits for a step ages by one version with each publication. So no more groups should be in progress
than keep the trainer busy. By Little's law that is the number that it takes during the sojourn of a group. Publications
take a whole batch at a time, so the law is applied to steps: of a batch's groups that were admitted k steps ago, those
are still open whose sojourn exceeds k steps. Beside them there is the batch in training and the next one, which must be
ready when the step ends.

Example: a batch has 16 groups, and 90 % of the groups are ready within one step, all of them within two. Then 16 groups
are in training, 16 must be ready by the end of the step, and 1.6 are expected to be open then, with a deviation of 1.2.
So 16 + 16 + 1.6 + 2 × 1.2 = 36 groups may be in progress, where a staleness bound of 3 alone would allow 64.

If the trainer waits for batches, the engines are the bottleneck and should never idle: the more it waits, the nearer
the limit comes to the bound. A job of which nothing was measured yet has one batch in training and one ahead.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from seamlessflow.core.admission.pace import JobPace
from seamlessflow.core.algorithms.staleness_bound import StalenessBound

# Above this fraction of idle time of the trainer, rollout is the bottleneck.
FULL_IDLE_SHARE = 0.1
NUM_DEVIATIONS = 2.0  # of the number of groups that are not ready in time
SOJOURN_MARGIN = 1.1  # groups are taken to last this much longer than they did


class RunAhead(StrEnum):
    """as_needed: so far that the trainer does not wait. to_bound: as far as the staleness bound allows."""

    AS_NEEDED = "as_needed"
    TO_BOUND = "to_bound"


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """Training groups of a job, counted in its rows."""

    num_waiting: int  # open and ready
    num_unserved: int  # in batches that some engine within the staleness bound does not serve yet
    num_at_trainer: int  # in batches that no engine serves yet; of the published ones the newest at most
    num_late: int  # open for longer than any of the groups that were measured
    next_index: int
    last_batch: int


@dataclass(frozen=True, slots=True)
class Admitting:
    """What a job's specification says about admission."""

    groups_per_batch: int
    num_updates: int
    bound: StalenessBound
    run_ahead: RunAhead = RunAhead.AS_NEEDED


def num_admissible(job: Admitting, counts: GroupCounts, pace: JobPace | None) -> int:
    """Return how many new groups may begin now.

    The remaining updates bound the groups to what they need, with one batch to spare. Late groups count for the
    staleness bound only, because the trainer cannot rely on them.
    """
    remaining = job.num_updates - counts.last_batch
    if remaining <= 0:
        return 0
    by_bound = _most_groups(job) - counts.num_waiting - counts.num_unserved
    by_updates = job.groups_per_batch * (remaining + 1) - counts.num_waiting
    by_need = num_groups_needed(job, pace) - (counts.num_waiting - counts.num_late) - counts.num_at_trainer
    return max(0, min(by_bound, by_updates, by_need))


def num_groups_needed(job: Admitting, pace: JobPace | None) -> int:
    """Return how many groups may be in progress: in training, ready and open."""
    most = _most_groups(job)
    least = min(2 * job.groups_per_batch, most)
    if job.run_ahead is RunAhead.TO_BOUND:
        return most
    if pace is None:
        return least
    needed = least + _num_not_ready(job, pace)
    needed += (most - needed) * min(pace.idle_share / FULL_IDLE_SHARE, 1.0)
    return min(max(math.ceil(needed), least), most)


def _num_not_ready(job: Admitting, pace: JobPace) -> float:
    """Return how many groups are still open when a step ends, with a margin for chance."""
    steps = range(1, job.bound.num_batches_ahead)
    late = [pace.probability_beyond(step * pace.step_s / SOJOURN_MARGIN) for step in steps]
    variance = job.groups_per_batch * sum(fraction * (1 - fraction) for fraction in late)
    return job.groups_per_batch * sum(late) + NUM_DEVIATIONS * math.sqrt(variance)


def _most_groups(job: Admitting) -> int:
    return job.groups_per_batch * job.bound.num_batches_ahead
