"""(g): six jobs that train on a machine which keeps the processes of four.

Only one of the eight machines trains, because trainers that spread over several would all find room. They note each
step that they apply (`tests.fakes.paced_step_engine`), so a batch that was applied twice is seen, also if its second
version was never published.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.core.types.tags import Role
from tests.benchmarks.cluster.rounds import Outcome
from tests.benchmarks.fleet.jobs import FleetJob
from tests.benchmarks.fleet.running import WORKING, Fleet
from tests.benchmarks.fleet.sides import Side
from tests.fakes.paced_step_engine import STEPS, steps_read

NUM_JOBS = 6
NUM_VERSIONS = 2
WARM_S = 40.0
APPLIED_TWICE, NOT_APPLIED = "batches applied twice", "versions whose batch was not applied"
STARTED_AGAIN = "trainers that came back"


@dataclass(frozen=True, slots=True)
class NotingJob(FleetJob):
    """A job whose trainers note each step that they apply."""

    def write(self, endless: Path, folder: Path) -> tuple[Path, Path]:
        model, tasks = FleetJob.write(self, endless, folder)
        (model / STEPS).write_text("")
        return model, tasks


WARM_JOBS = tuple(
    NotingJob(f"warm-{number}", ratio=3, groups_per_batch=2, mean_tokens=40) for number in range(NUM_JOBS)
)


def more_jobs_than_stay_warm(
    fleet: Fleet, jobs: Sequence[FleetJob] = WARM_JOBS, duration_s: float = WARM_S
) -> Outcome:
    """Run six jobs for a while, whose trainers share a machine, and count what these applied."""
    side = Side("six jobs", tuple(jobs))
    fleet.retag(side)
    for name in WORKING[1:]:
        fleet.edit(name, tags=[Role.ROLLOUT.value])
    with fleet.jobs_running(side) as job_ids:
        fleet.await_versions(job_ids, NUM_VERSIONS)
        time.sleep(duration_s)
        losses = {one: fleet.observer.losses(one) for one in job_ids}
    fleet.check(losses)
    applied = [steps_read(job.model_in(fleet.models)) for job in jobs]
    versions = [fleet.client.job_get(one)["latest_version"] for one in job_ids]
    figures = {
        APPLIED_TWICE: float(sum(num_twice(one) for one in applied)),
        NOT_APPLIED: float(sum(num_missing(one, last) for one, last in zip(applied, versions, strict=True))),
        STARTED_AGAIN: float(sum(num_processes(one) - 1 for one in applied)),
        "versions published": float(sum(versions)),
    }
    return Outcome(figures, {}, {})


def num_twice(applied: Sequence[tuple[int, int]]) -> int:
    return len(applied) - len({step for step, _ in applied})


def num_missing(applied: Sequence[tuple[int, int]], last: int) -> int:
    """Return how many of the versions up to the last were made by no step."""
    return len(set(range(1, last + 1)) - {step for step, _ in applied})


def num_processes(applied: Sequence[tuple[int, int]]) -> int:
    return len({process for _, process in applied})
