"""(f): a machine whose phases fail, a job that fails everywhere, and machines that are lost at once.

Each function runs one trial on a fleet that two jobs fill, and returns its figures. What is compared was measured in
the same trial, with the same running jobs: before the fault and beside it. Rates are added as shares of what machines
that only work would reach for the job, so tokens of all jobs count alike.
"""

import time
from collections.abc import Sequence
from datetime import datetime

from tests.benchmarks.cluster.rounds import Outcome
from tests.benchmarks.fleet.arrivals import fillers, submitted
from tests.benchmarks.fleet.breaking import PoisonJob, broken, cordoned, silent
from tests.benchmarks.fleet.jobs import JOBS, FleetJob
from tests.benchmarks.fleet.phases import Failures
from tests.benchmarks.fleet.running import WORKING, Fleet, awaited
from tests.benchmarks.fleet.sides import BOUND, NUM_MACHINES

FILLERS = JOBS[:2]
POISON = PoisonJob("poison", ratio=7, groups_per_batch=8, mean_tokens=75)
BAD = WORKING[0]  # the name that comes first is the one that is chosen first
LOST = WORKING[:3]
OBSERVED_S = 60.0  # each job publishes about seven times in it
NUM_VERSIONS_AWAY = 2  # of each job, while machines are lost
ENDED = frozenset({"failed", "cancelled", "completed"})
BAD_FAILURES, BAD_RATE = "failures before it is quarantined", "rates by those of seven machines"
POISON_RATE, POISON_PAUSED = "its neighbours' rates by those without it", "poison jobs paused with a reason"
JOBS_HURT = "jobs that ended or paused"


def failing_machine(
    fleet: Fleet, jobs: Sequence[FleetJob] = FILLERS, observed_s: float = OBSERVED_S
) -> Outcome:
    """Let two jobs run without a machine, then give it back broken."""
    failures = Failures(fleet.observer.database_url)
    with cordoned(fleet, BAD), fillers(fleet, jobs, max_staleness=BOUND) as job_ids:
        without = useful_share(fleet, jobs, job_ids, observed_s)
        with broken(fleet, BAD):
            since = fleet.observer.now()
            fleet.edit(BAD, is_cordoned=False)
            beside = useful_share(fleet, jobs, job_ids, observed_s)
            awaited(lambda: failures.quarantined_at(BAD, since) is not None, f"{BAD} in quarantine")
        judged_at = failures.quarantined_at(BAD, since)
        losses = {one: fleet.observer.losses(one) for one in job_ids}
    assert judged_at is not None
    fleet.check(losses)
    figures = {
        BAD_FAILURES: float(failures.num_on(BAD, since, judged_at)),
        BAD_RATE: beside / without,
        "quarantined after, s": (judged_at - since).total_seconds(),
        "its failures in all": float(failures.num_on(BAD, since, fleet.observer.now())),
    }
    return Outcome(figures, {}, {})


def poison_job(fleet: Fleet, jobs: Sequence[FleetJob] = FILLERS, observed_s: float = OBSERVED_S) -> Outcome:
    """Submit a job that fails everywhere beside two that work, and wait until it has paused itself."""
    with fillers(fleet, jobs, max_staleness=BOUND) as job_ids:
        without = useful_share(fleet, jobs, job_ids, observed_s)
        with submitted(fleet, POISON) as poison_id:
            beside = useful_share(fleet, jobs, job_ids, observed_s)
            more_s = awaited(lambda: is_paused(fleet, poison_id), f"the pause of {POISON.name}")
            num_failed, num_machines = Failures(fleet.observer.database_url).of_job(poison_id)
        losses = {one: fleet.observer.losses(one) for one in job_ids}
    fleet.check(losses)
    figures = {
        POISON_RATE: beside / without,
        POISON_PAUSED: 1.0,  # `awaited` raises otherwise
        "waited for its pause after the comparison, s": more_s,
        "its failures": float(num_failed),
        "machines on which it failed": float(num_machines),
    }
    return Outcome(figures, {}, {})


def machines_lost(fleet: Fleet, jobs: Sequence[FleetJob] = FILLERS) -> Outcome:
    """Silence three of eight machines at once, until the jobs have published without them; then let them come back."""
    with fillers(fleet, jobs, max_staleness=BOUND) as job_ids:
        with silent(fleet, LOST):
            down_s = awaited(lambda: not any(_machines(fleet, "is_up", LOST)), "the loss of machines")
            versions = [fleet.client.job_get(one)["latest_version"] + NUM_VERSIONS_AWAY for one in job_ids]
            away_s = awaited(
                lambda: all(
                    fleet.client.job_get(one)["latest_version"] >= version
                    for one, version in zip(job_ids, versions, strict=True)
                ),
                "a publication without the lost machines",
            )
        back_s = awaited(lambda: all(_machines(fleet, "phase", LOST)), "work on the machines that came back")
        states = [fleet.client.job_get(one)["state"] for one in job_ids]
        num_blamed = sum(one is not None for one in _machines(fleet, "quarantine", WORKING))
        losses = [fleet.observer.losses(one) for one in job_ids]
    figures = {
        JOBS_HURT: float(sum(state in ENDED or state == "paused" for state in states)),
        "machines blamed": float(num_blamed),
        "lost machines noticed after, s": down_s,
        "two more versions of each job after, s": away_s,
        "lost machines at work again after, s": back_s,
        "tokens wasted": float(sum(num_tokens for num_tokens, _ in losses)),
        "sessions failed or begun again": float(sum(num_sessions for _, num_sessions in losses)),
    }
    return Outcome(figures, {}, {})


def useful_share(fleet: Fleet, jobs: Sequence[FleetJob], job_ids: Sequence[str], duration_s: float) -> float:
    """Observe for a while, and return the sum of the jobs' rates by their bounds."""
    since: datetime = fleet.observer.now()
    time.sleep(duration_s)
    until = fleet.observer.now()
    rates = [fleet.observer.rate(job_id, since, until) for job_id in job_ids]
    return sum(rate / job.bound(NUM_MACHINES) for rate, job in zip(rates, jobs, strict=True))


def is_paused(fleet: Fleet, job_id: str) -> bool:
    """Whether a job is paused and says why."""
    job = fleet.client.job_get(job_id)
    return job["state"] == "paused" and bool(job["state_reason"])


def _machines(fleet: Fleet, column: str, names: Sequence[str]) -> list[object]:
    return [one[column] for one in fleet.client.machine_list() if one["name"] in names]
