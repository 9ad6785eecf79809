"""Reads the snapshot of one scheduling cycle from PostgreSQL, in a fixed number of queries.

A machine is healthy while its newest heartbeat is younger than its limit by the server's clock.
"""

from seamlessflow.control_plane.scheduling.selectors.judgement_rows import failure_views
from seamlessflow.control_plane.scheduling.selectors.pace_rows import sampled_load
from seamlessflow.control_plane.scheduling.selectors.snapshot_rows import job_views, machine_views
from seamlessflow.core.scheduling.blame.stragglers import with_paces
from seamlessflow.core.scheduling.snapshot import Snapshot


def snapshot_load(*, may_evict: bool = True) -> Snapshot:
    # Machines first: a lease that ends in between is then seen with the demand that it left, and is decided anew.
    machines = with_paces(machine_views(), sampled_load())
    return Snapshot(machines=machines, jobs=job_views(), failures=failure_views(), may_evict=may_evict)
