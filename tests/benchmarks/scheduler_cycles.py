"""Measures whole cycles of the scheduler on a database: read the snapshot, decide, write.

`python -m tests.benchmarks.scheduler_cycles JOB_UUID NUM_MACHINES NUM_JOBS` makes a fleet as `scheduler` does, of jobs
like that one, already at work. Before each cycle, batches became ready for one job in a hundred. It prints, as JSON on
one line, for each cycle the milliseconds of processor time of each part, the seconds of wall time of all, and how many
statements it took besides those that carry out its decisions.
"""

import gc
import json
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import django

django.setup()

from django.db import connection  # noqa: E402 - models may be imported only once Django is set up
from django.utils import timezone  # noqa: E402

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat  # noqa: E402
from seamlessflow.control_plane.common.ids import new_id  # noqa: E402
from seamlessflow.control_plane.jobs.models import Job  # noqa: E402
from seamlessflow.control_plane.scheduling.management.commands.run_scheduler import GC_THRESHOLD  # noqa: E402
from seamlessflow.control_plane.scheduling.models import Phase  # noqa: E402
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load  # noqa: E402
from seamlessflow.control_plane.scheduling.services import leases as services  # noqa: E402
from seamlessflow.control_plane.trajectories.models import RolloutGroup  # noqa: E402
from seamlessflow.core.lifecycle.groups import GroupState  # noqa: E402
from seamlessflow.core.scheduling.decisions import Plan  # noqa: E402
from seamlessflow.core.scheduling.scheduler import decide  # noqa: E402
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, Snapshot  # noqa: E402
from tests.benchmarks.scheduler import SEED, Size, at_work, fleet  # noqa: E402

NUM_CYCLES = 7
HEARD_FOR = timedelta(hours=1)  # nobody sends heartbeats here
CAPABILITIES = {"engine_kinds": ["embedded"], "engine_problems": {}, "rendezvous": "127.0.0.1:1"}


def main(job_id: UUID, size: Size) -> None:
    logging.disable(logging.INFO)  # a line for each decision
    chance = random.Random(SEED)
    wanted = fleet(size, chance)
    _machines_make(wanted.machines)
    _jobs_make(Job.objects.get(id=job_id), wanted.jobs)
    _put_to_work(at_work(snapshot_load()))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 50)
    _cycle()  # what is read once for a process
    print(json.dumps([_changed_cycle(chance) for _ in range(NUM_CYCLES)]), flush=True)


def _machines_make(machines: tuple[MachineView, ...]) -> None:
    Machine.objects.bulk_create(
        Machine(id=view.id, name=view.name, tags=sorted(view.tags), last_fence=1) for view in machines
    )
    now = timezone.now()
    MachineHeartbeat.objects.bulk_create(
        MachineHeartbeat(
            machine_id=view.id, boot_id=new_id(), anchor_at=now, received_at=now + HEARD_FOR, capabilities=CAPABILITIES
        )
        for view in machines
    )  # fmt: skip


def _jobs_make(like: Job, jobs: tuple[JobView, ...]) -> None:
    made = []
    for view in jobs:
        job = Job.objects.get(id=like.id)
        job.id, job.name, job._state.adding = view.id, view.name, True
        job.latest_version = job.published_batch = 0
        job.spec = job.spec | {
            "environment": job.spec["environment"] | {"name": "calculator"},
            "rollout": job.spec["rollout"] | {"group_size": 8, "groups_per_batch": 2},
            "train": job.spec["train"] | {"num_machines": view.num_train_machines, "num_updates": 100},
            "placement": {
                "rollout": [], "train": sorted(view.train_tags), "agent": sorted(view.agent_tags)
            },
        }  # fmt: skip
        made.append(job)
    like.delete()
    Job.objects.bulk_create(made)


def _put_to_work(snapshot: Snapshot) -> None:
    """Store the phases and states that the snapshot has."""
    projects = dict(Job.objects.values_list("id", "project_id"))
    now = timezone.now()
    Phase.objects.bulk_create(
        Phase(
            id=phase.id, job_id=phase.job_id, project_id=projects[phase.job_id], machine_id=machine.id,
            role=phase.role, fence=1, state=phase.state, leased_at=now, active_at=now, served_version=0,
            num_batches=phase.num_batches, gang_id=phase.gang.id if phase.gang else None,
            gang_member=phase.gang.member if phase.gang else None,
        )
        for machine in snapshot.machines
        if (phase := machine.phase) is not None
    )  # fmt: skip
    for state in {job.state for job in snapshot.jobs}:
        ids = [job.id for job in snapshot.jobs if job.state is state]
        Job.objects.filter(id__in=ids).update(state=state, queued_at=now, admitted_at=now)


def _changed_cycle(chance: random.Random) -> dict[str, float]:
    jobs = list(Job.objects.filter(state="running").order_by("id"))
    due = chance.sample(jobs, max(1, len(jobs) // 100))
    _batches_make(due)
    told = _cycle()
    RolloutGroup.objects.filter(job__in=due).delete()
    _obey()
    return told


def _batches_make(jobs: list[Job]) -> None:
    now = timezone.now()
    RolloutGroup.objects.bulk_create(
        RolloutGroup(
            id=new_id(), project_id=job.project_id, job=job, index=number, size=8, state=GroupState.READY,
            created_at=now, ready_at=now, finalized_at=now,
        )
        for job in jobs
        for number in range(2 * job.resolved_spec.rollout.groups_per_batch)
    )  # fmt: skip


def _obey() -> None:
    """Let every machine do what it was told, and let the scheduler answer, until nothing is left to decide."""
    while True:
        now = timezone.now()
        Phase.objects.filter(state="draining").update(state="ended", ended_at=now)
        Phase.objects.filter(state="leased").update(state="active", active_at=now)
        plan = decide(snapshot_load())
        services.plan_apply(plan)
        if not plan.decisions:
            return


def _cycle() -> dict[str, float]:
    began_s, num_statements = time.perf_counter(), [0]
    with _counted(num_statements):
        snapshot, snapshot_ms = _timed(snapshot_load)
        plan, decide_ms = _timed(lambda: decide(snapshot))
        _, reasons_ms = _timed(lambda: services.plan_apply(replace(plan, decisions=())))
    _, carry_out_ms = _timed(lambda: services.plan_apply(Plan(plan.decisions, {}, {})))
    return {
        "snapshot_ms": snapshot_ms,
        "decide_ms": decide_ms,
        "write_ms": reasons_ms + carry_out_ms,
        "wall_ms": (time.perf_counter() - began_s) * 1000,
        "num_decisions": len(plan.decisions),
        "num_statements": num_statements[0],
    }


def _timed(act: Callable[[], Any]) -> tuple[Any, float]:
    began_s = time.process_time()
    result = act()
    return result, (time.process_time() - began_s) * 1000


@contextmanager
def _counted(num: list[int]) -> Iterator[None]:
    """Count statements, also those that stay prepared: both ask Django for a cursor."""
    make = connection.make_cursor

    def counting(cursor: Any) -> Any:
        num[0] += 1
        return make(cursor)

    connection.make_cursor = counting  # type: ignore[method-assign]
    try:
        yield
    finally:
        connection.make_cursor = make  # type: ignore[method-assign]


if __name__ == "__main__":
    main(UUID(sys.argv[1]), Size(int(sys.argv[2]), int(sys.argv[3])))
