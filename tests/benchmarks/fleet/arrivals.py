"""(b), (c) and (d): what happens when jobs come to a full fleet, weigh unlike, pause, or are urgent.

Each function runs one trial on a fleet and returns its figures. Times are given in seconds and, where a goal is about
them, in median hand-overs of the same run, because that is what a scheduler can do at best.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import psycopg

from seamlessflow.core.types.tags import Role
from tests.benchmarks.cluster.rounds import Outcome
from tests.benchmarks.cluster.running import RunFailed
from tests.benchmarks.fleet.jobs import JOBS, FleetJob
from tests.benchmarks.fleet.observing import Observer
from tests.benchmarks.fleet.phases import Phases
from tests.benchmarks.fleet.running import LEDGER_S, WORKING, Fleet, awaited
from tests.benchmarks.fleet.sides import BOUND, Side

A, B, NEWCOMER = JOBS
SERVED_LIMIT_S = 90.0
POLL_S = 0.2
FILLED_VERSIONS, FEW_VERSIONS = 3, 2
STEP_S = 12.0  # the longest step of a job that fills the fleet takes 8 s
FIRST_TOKEN, HELD, LEFT = (
    "first served token, s",
    "machines one hand-over later",
    "hand-overs until its share works elsewhere",
)
TURNED, FAILED_STEPS, LEAST = (
    "hand-overs until a machine turns, p95",
    "steps discarded",
    "least share of its entitlement",
)
WEIGHTS = {"fleet-one": 1.0, "fleet-other": 1.0, "fleet-double": 2.0}
URGENT = 50
TRAINS_URGENT = "trains-urgent-jobs"


@dataclass(frozen=True, slots=True)
class Trial:
    """A run of its own, named in tables."""

    name: str
    run: Callable[[Fleet], Outcome]


def newcomer_alone(fleet: Fleet) -> Outcome:
    """Submit a job to an empty fleet."""
    fleet.retag(Side("empty", ()))
    with submitted(fleet, NEWCOMER) as job_id:
        return Outcome({FIRST_TOKEN: served_s(fleet, job_id)}, {}, {})


def newcomer_to_full_fleet(fleet: Fleet) -> Outcome:
    """Submit a third job where two have more turns than machines."""
    with fillers(fleet, (A, B), max_staleness=BOUND) as filler_ids:
        phases, began_at = Phases(fleet.observer.database_url), fleet.observer.now()
        with submitted(fleet, NEWCOMER) as job_id:
            first_s = served_s(fleet, job_id)
            created_at = datetime.fromisoformat(fleet.client.job_get(job_id)["created_at"])
            hand_over_s = median_hand_over_s(fleet.observer, began_at)
            at = created_at + timedelta(seconds=first_s + hand_over_s)
            time.sleep(2 * hand_over_s)
            figures = {
                FIRST_TOKEN: first_s,
                HELD: float(phases.num_held(job_id, at)),
                "median hand-over, s": hand_over_s,
            }
            losses = {one: fleet.observer.losses(one) for one in (*filler_ids, job_id)}
    fleet.check(losses)
    return Outcome(figures, {}, {})


def shares_by_weight(fleet: Fleet, duration_s: float) -> Outcome:
    """Let three projects of weights 1, 1 and 2 compete, then pause the heaviest one's job.

    Its busiest engine stays until its agents have ended their episodes, so that one is told apart. The unit is a
    hand-over from the paused job to another: before the pause every job has its share, so machines only turn to
    steps of their own jobs and back.
    """
    projects_make(fleet.observer.database_url)
    fleet.retag(Side("weights", ()))
    job_ids: list[str] = []
    try:
        for job, project in zip(JOBS, WEIGHTS, strict=True):
            job_ids.append(fleet.submit(job, max_staleness=BOUND, project=project))
        fleet.await_versions(job_ids, FILLED_VERSIONS)
        seen = fleet.observe(job_ids, duration_s)
        entitled = {
            job_id: weight / sum(WEIGHTS.values())
            for job_id, weight in zip(job_ids, WEIGHTS.values(), strict=True)
        }
        whole_s = seen.duration_s * seen.num_machines
        shares = {job_id: seen.machine_s(job_id) / whole_s / entitled[job_id] for job_id in job_ids}
        paused_at = fleet.observer.now()
        fleet.client.job_edit(job_ids[-1], "pause", reason="benchmark")
        *left_s, last_s = await_left(Phases(fleet.observer.database_url), job_ids[-1], paused_at)
        hand_over_s = statistics.median(
            fleet.observer.hand_overs_s(paused_at, fleet.observer.now(), is_between_jobs=True)
        )
    finally:
        for job_id in job_ids:
            fleet.cluster.cancel(job_id)
    told = {
        f"share of its entitlement, {project}": shares[one]
        for project, one in zip(WEIGHTS, job_ids, strict=True)
    }
    figures = {
        LEAST: min(shares.values()),
        LEFT: max(left_s, default=last_s) / hand_over_s,
        "its last engine left after, s": last_s,
        "median hand-over, s": hand_over_s,
    }
    return Outcome(figures | told, seen.time_shares, {})


def urgent_jobs(fleet: Fleet, num_jobs: int) -> Outcome:
    """Submit urgent jobs, one after another, to a fleet on which two synchronous jobs generate and train.

    Each is cancelled as soon as an engine answers; the last one stays until machines that train have ended their step.
    None of them trains. They may train on one machine only, or each would start eight trainers.
    """
    phases = Phases(fleet.observer.database_url)
    urgent_ids: list[str] = []
    with fillers(fleet, (A, B), max_staleness=0, num_versions=FEW_VERSIONS) as filler_ids:
        fleet.edit(WORKING[-1], tags=[Role.ROLLOUT.value, Role.TRAIN.value, TRAINS_URGENT])
        since = fleet.observer.now()
        for number in range(num_jobs):
            with submitted(fleet, NEWCOMER, priority=URGENT, train_tag=TRAINS_URGENT) as job_id:
                awaited(partial(phases.is_served, job_id), f"an engine of {job_id}")
                if number == num_jobs - 1:
                    time.sleep(STEP_S)
            urgent_ids.append(job_id)
        hand_over_s = median_hand_over_s(fleet.observer, since)
        num_failed = sum(map(phases.num_failed_steps, filler_ids))
        losses = {one: fleet.observer.losses(one) for one in filler_ids}
    fleet.check(losses)
    turned_s = [seconds for one in urgent_ids for seconds in phases.turned_s(one, filler_ids)]
    return Outcome(
        {
            TURNED: percentile(turned_s, 0.95) / hand_over_s,
            FAILED_STEPS: float(num_failed),
            "machines that rolled out and turned": float(len(turned_s)),
            "machines that ended a step and turned": float(
                sum(phases.num_after_steps(one, filler_ids) for one in urgent_ids)
            ),
            "median hand-over, s": hand_over_s,
        },
        {},
        {},
    )


@contextmanager
def fillers(
    fleet: Fleet, jobs: Sequence[FleetJob], *, max_staleness: int, num_versions: int = FILLED_VERSIONS
) -> Iterator[list[str]]:
    """Run jobs that fill the fleet, and yield once all of them train."""
    side = Side("fillers", tuple(jobs), max_staleness=max_staleness)
    fleet.retag(side)
    with fleet.jobs_running(side) as job_ids:
        fleet.await_versions(job_ids, num_versions)
        yield job_ids


@contextmanager
def submitted(
    fleet: Fleet, job: FleetJob, *, priority: int = 0, train_tag: str | None = None
) -> Iterator[str]:
    job_id = fleet.submit(job, max_staleness=BOUND, priority=priority, train_tag=train_tag)
    try:
        yield job_id
    finally:
        fleet.cluster.cancel(job_id)


def served_s(fleet: Fleet, job_id: str) -> float:
    """Wait until the job was served, and return how long after its submission that began. Raises RunFailed.

    Machines tell it with their heartbeats, so the first that told it need not have been the first that served.
    """
    told_s = await_served(fleet, job_id)
    time.sleep(LEDGER_S)
    known_s = Phases(fleet.observer.database_url).first_served_s(job_id)
    return told_s if known_s is None else known_s


def await_served(fleet: Fleet, job_id: str) -> float:
    """Wait until a machine has told that it serves the job, and return since when, after its submission."""
    phases, deadline_s = Phases(fleet.observer.database_url), time.monotonic() + SERVED_LIMIT_S
    while (seconds := phases.first_served_s(job_id)) is None:
        if time.monotonic() > deadline_s:
            raise RunFailed(f"{job_id} was not served within {SERVED_LIMIT_S:.0f} s")
        time.sleep(POLL_S)
    return seconds


def await_left(phases: Phases, job_id: str, since: datetime) -> Sequence[float]:
    """Wait until all machines of a job work for others, and return how long each took, the longest last."""
    deadline_s = time.monotonic() + SERVED_LIMIT_S
    while not (took_s := phases.left_s(job_id, since)) or took_s[-1] == float("inf"):
        if time.monotonic() > deadline_s:
            raise RunFailed(
                f"machines of {job_id} do not work for others {SERVED_LIMIT_S:.0f} s after its pause"
            )
        time.sleep(POLL_S)
    return took_s


def median_hand_over_s(observer: Observer, since: datetime) -> float:
    took_s = observer.hand_overs_s(since, observer.now())
    if not took_s:
        raise RunFailed("no machine was handed over")
    return statistics.median(took_s)


def percentile(values: Sequence[float], share: float) -> float:
    if not values:
        raise RunFailed("no machine turned")
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def projects_make(database_url: str) -> None:
    """Create the projects: there is no API for it, only the admin site."""
    with psycopg.connect(database_url) as connection:
        for slug, weight in WEIGHTS.items():
            connection.execute(
                """INSERT INTO accounts_project (id, slug, name, weight, created_at)
                   VALUES (gen_random_uuid(), %s, %s, %s, now()) ON CONFLICT (slug) DO NOTHING""",
                [slug, slug, weight],
            )
