"""The sides of the comparison: which jobs run at once, on which machines each, and how far generation may be ahead.

Every machine may roll out and train. On a shared side all jobs may use all machines; on a static split each job has
machines of its own, by a tag. `splits_best` names the splits that come nearest to the best by the stated costs, because
measuring all of them would take hours.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from seamlessflow.core.types.tags import Role
from tests.benchmarks.fleet.jobs import JOBS, SHORT_JOBS, FleetJob

NUM_MACHINES = 8
BOUND = 3  # of the side that is not synchronous


@dataclass(frozen=True, slots=True)
class Side:
    """`split`: how many machines each job has for itself; empty: they share all."""

    name: str
    jobs: tuple[FleetJob, ...]
    split: tuple[int, ...] = ()
    max_staleness: int = 0
    observed_s: float = 70.0  # some publications of each job

    def tag_of(self, job: FleetJob) -> str | None:
        return f"of-{job.name}" if self.split else None

    def tags(self) -> Iterator[list[str]]:
        """Yield the tags of each machine."""
        both = [Role.ROLLOUT.value, Role.TRAIN.value]
        for job, num in zip(self.jobs, self.split, strict=True) if self.split else ():
            yield from itertools.repeat([*both, f"of-{job.name}"], num)
        if not self.split:
            yield from itertools.repeat(both, NUM_MACHINES)


def alone(job: FleetJob) -> Side:
    return Side(f"{job.name} alone", (job,), observed_s=40.0)


def split(numbers: Sequence[int]) -> Side:
    return Side(f"split {'+'.join(map(str, numbers))}", JOBS, tuple(numbers), observed_s=50.0)


def splits_best(num: int) -> list[Side]:
    """Return the splits with the highest estimated sum of rates by rates alone, the best first."""
    sizes = range(1, NUM_MACHINES)
    every = [one for one in itertools.product(sizes, repeat=len(JOBS)) if sum(one) == NUM_MACHINES]
    return [split(numbers) for numbers in sorted(every, key=estimated_gain, reverse=True)[:num]]


def estimated_gain(numbers: Sequence[int]) -> float:
    rates = (
        job.alone_rate(num) / job.alone_rate(NUM_MACHINES) for job, num in zip(JOBS, numbers, strict=True)
    )
    return sum(rates)


SHARED = Side("shared, synchronous", JOBS)
AHEAD = Side("shared, staleness 3", JOBS, max_staleness=BOUND)
ALONE = tuple(alone(job) for job in JOBS)
SPLITS = tuple(splits_best(2))
# The job with the longest step trains on two machines at once.
GANG = replace(
    SHARED,
    name="shared, a gang of two",
    jobs=(replace(JOBS[0], name="gang-of-two", num_train_machines=2), *JOBS[1:]),
)
SIDES = (SHARED, *ALONE, *SPLITS, AHEAD)
SHORT_SIDES = (
    Side("two short jobs", SHORT_JOBS, observed_s=20.0),
    replace(alone(SHORT_JOBS[0]), observed_s=10.0),
)
