"""The pace of a job: how fast its trainer takes batches, and how long its groups take.

Takes measurements of the batches that were published last. A step lasts from the moment at which the trainer was
free and had the batch until its publication; the time before, in which it was free without a batch, is its wait. A
sojourn lasts from the publication that admitted a group until the group is ready, so it includes everything that
happens in between: engines that load weights, runners without free slots, groups that were replaced.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

NUM_BATCHES_MEASURED = 4


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """One published batch. All times in seconds."""

    step_s: float
    wait_s: float
    sojourns_s: tuple[float, ...]  # of its groups
    longest_s: float  # from the admission of one of its groups until that was ready


@dataclass(frozen=True, slots=True)
class JobPace:
    step_s: float
    idle_share: float  # of its time the trainer had no batch
    sojourns_s: tuple[float, ...]
    longest_s: float  # an open group that is older than this is late

    def probability_beyond(self, seconds: float) -> float:
        """Return the fraction of groups that took longer; 0 if nothing is known."""
        if not self.sojourns_s:
            return 0.0
        return sum(sojourn > seconds for sojourn in self.sojourns_s) / len(self.sojourns_s)


def pace_of(batches: Sequence[MeasuredBatch]) -> JobPace | None:
    """Return the pace, or None if nothing was published yet.

    The median is robust against a step that compiled or was repeated; of the waits each one counts.
    """
    if not batches:
        return None
    idle = [batch.wait_s / (batch.wait_s + batch.step_s) for batch in batches if batch.step_s > 0]
    return JobPace(
        step_s=statistics.median(batch.step_s for batch in batches),
        idle_share=statistics.fmean(idle) if idle else 0.0,
        sojourns_s=tuple(sojourn for batch in batches for sojourn in batch.sojourns_s),
        longest_s=max(batch.longest_s for batch in batches),
    )
