"""Machines with several devices: which jobs they fit, and how many of them a job wants."""

from dataclasses import replace
from uuid import UUID

import pytest

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.eligibility import FIT_FILTERS, first_rejection
from seamlessflow.core.scheduling.explain.dry_run import dry_run
from seamlessflow.core.scheduling.plan import fleet_plan
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, Snapshot
from seamlessflow.core.types.tags import Role

JOB = JobView(
    id=UUID(int=1), name="wide", order=1, state=JobState.RUNNING, num_updates=10, engines_wanted=8,
    groups_per_batch=4, group_size=4, slots_per_engine=2, has_external_agents=True,
)  # fmt: skip
NEEDED = "an engine of the job needs 4 (rollout.parallel)"


def machine(number: int, num_devices: int | None) -> MachineView:
    tags = frozenset({"rollout", "train"})
    return MachineView(id=UUID(int=100 + number), name=f"m{number}", tags=tags, num_devices=num_devices)


@pytest.mark.parametrize(
    "num_devices, reason",
    [
        (4, None),
        (5, None),
        (1, f"m1 has 1 working device, but {NEEDED}"),
        (3, f"m1 has 3 working devices, but {NEEDED}"),
        (
            None,
            f"m1 has not reported its devices, and {NEEDED}",
        ),
    ],
)
def test_a_machine_with_fewer_devices_than_one_engine_needs_is_no_candidate(
    num_devices: int | None, reason: str | None
) -> None:
    wide = replace(JOB, devices_per_engine=4)
    assert first_rejection(FIT_FILTERS, machine(1, num_devices), wide, Role.ROLLOUT) == reason
    assert first_rejection(FIT_FILTERS, machine(1, num_devices), wide, Role.TRAIN) is None
    assert first_rejection(FIT_FILTERS, machine(1, num_devices), JOB, Role.ROLLOUT) is None


def test_a_job_that_fits_nowhere_waits_with_the_reason() -> None:
    waiting = replace(JOB, state=JobState.QUEUED, devices_per_engine=4)
    final = dry_run(Snapshot(machines=(machine(1, 2), machine(2, 1)), jobs=(waiting,))).final
    assert final.live_phases(JOB.id) == ()
    plan = fleet_plan(final, (waiting,))
    assert Role.ROLLOUT in plan.floors.missing[JOB.id]


@pytest.mark.parametrize(
    "devices, per_engine, num_wanted",
    [
        ((1, 1, 1), 1, 8),
        ((None, None), 1, 8),
        ((8, 8), 1, 1),
        ((8, 8), 4, 4),
        ((8, 3), 2, 8),  # the small one runs one engine, which nobody should count on more than
        ((8, 3), 4, 4),  # the small one runs none, so only the other counts
    ],
)
def test_a_job_wants_as_many_machines_as_run_its_engines(
    devices: tuple[int | None, ...], per_engine: int, num_wanted: int
) -> None:
    job = replace(JOB, devices_per_engine=per_engine)
    machines = tuple(machine(number, num) for number, num in enumerate(devices))
    demand = fleet_plan(Snapshot(machines=machines, jobs=(job,)), (job,)).demands[job.id]
    assert (demand.rollout, demand.rollout_after) == (num_wanted, num_wanted)
