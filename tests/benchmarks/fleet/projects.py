"""Many jobs of one project and one job of another, where machines are fewer than floors: who has how much of them.

The jobs of the first project come first and hold all machines. Takes a fleet; returns the machine time of each project
from the moment on at which the other job was served, by the project's part. Both projects weigh the same.
"""

import time
from dataclasses import replace
from datetime import timedelta

from seamlessflow.core.types.tags import Role
from tests.benchmarks.cluster.rounds import Outcome
from tests.benchmarks.cluster.running import RunFailed
from tests.benchmarks.fleet.arrivals import LEAST, await_served, projects_make
from tests.benchmarks.fleet.jobs import JOBS, FleetJob
from tests.benchmarks.fleet.running import LEDGER_S, WORKING, Fleet
from tests.benchmarks.fleet.sides import BOUND

MANY, ONE = "fleet-one", "fleet-other"  # the projects; both have weight 1
CROWDED = "crowded"  # the tag of the machines that they share
NUM_CROWDED = 2
NUM_FILLED_VERSIONS = 2
SERVED = "until the other project was served, s"


def crowd_against_one(fleet: Fleet, num_jobs: int, observed_s: float) -> Outcome:
    """Submit `num_jobs` jobs of one project, then one of another, and watch them share two machines."""
    projects_make(fleet.observer.database_url)
    for name in WORKING[:NUM_CROWDED]:
        fleet.edit(name, tags=[Role.ROLLOUT.value, Role.TRAIN.value, CROWDED])
    ids: dict[str, list[str]] = {MANY: [], ONE: []}
    try:
        for number in range(num_jobs):
            ids[MANY].append(_submit(fleet, replace(JOBS[0], name=f"crowd-{number}"), MANY))
        fleet.await_versions(ids[MANY][:NUM_CROWDED], NUM_FILLED_VERSIONS)
        ids[ONE].append(_submit(fleet, JOBS[1], ONE))
        served_s = await_served(fleet, ids[ONE][0])
        since = fleet.observer.now()
        time.sleep(observed_s)
        until = fleet.observer.now()
        time.sleep(LEDGER_S)
        every = [one for of_project in ids.values() for one in of_project]
        seen = fleet.observer.seen(every, since, until)
        for one in every:
            if not fleet.client.job_part(one, "audit")["ok"]:
                raise RunFailed(f"the audit of {one} is not whole")
    finally:
        for of_project in ids.values():
            for one in of_project:
                fleet.cluster.cancel(one)
    part_s = (until - since) / timedelta(seconds=1) * NUM_CROWDED / len(ids)
    shares = {project: sum(map(seen.machine_s, of_project)) / part_s for project, of_project in ids.items()}
    told = {f"share of its part, {project}": share for project, share in shares.items()}
    return Outcome({LEAST: min(shares.values()), SERVED: served_s} | told, seen.time_shares, {})


def _submit(fleet: Fleet, job: FleetJob, project: str) -> str:
    return fleet.submit(job, max_staleness=BOUND, tag=CROWDED, project=project)
