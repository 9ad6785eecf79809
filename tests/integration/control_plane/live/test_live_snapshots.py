"""Snapshots of live topics contain the newest rows of each kind and say which kinds have older
ones."""

from datetime import timedelta

import pytest
from django.utils import timezone

from seamlessflow.control_plane.cluster.services.machines import machine_edit
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.live import selectors
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import MetricPoint
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.desired_state import MachineEdit
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, group_make, phase_make, worker_make


def test_the_snapshot_of_a_small_job_is_complete(cast: Cast) -> None:
    job = cast.job(is_running=True)
    phase_make(job, worker_make("alpha", "rollout").machine, Role.ROLLOUT)
    group_make(job, 0)

    assert selectors.job_snapshot(job.id)["truncated"] == []
    assert selectors.jobs_snapshot(job.project_id)["truncated"] == []
    assert selectors.machines_snapshot("default")["truncated"] == []


def test_kinds_with_older_rows_are_named(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MAX_JOBS", "MAX_EVENTS", "MAX_PHASES", "MAX_METRICS", "MAX_GROUPS", "MAX_UPDATES"):
        monkeypatch.setattr(selectors, limit, 2, raising=False)
    jobs = [cast.job(is_running=True) for _ in range(3)]
    job, alpha = jobs[0], worker_make("alpha", "rollout")
    for number in range(3):
        machine = worker_make(f"m{number}", "rollout").machine
        phase_make(job, machine, Role.ROLLOUT)
        group_make(job, number)
        MetricPoint.objects.create(project=job.project, job=job, name="train/loss", step=number, value=1.0)
        machine_edit(
            machine_id=alpha.machine.id, edit=MachineEdit(is_cordoned=number % 2 == 0), reason="test",
            author="system", generation=None,
        )  # fmt: skip
    told = selectors.job_snapshot(job.id)
    assert len(told["phases"]) == 3  # those that live are all there
    Phase.objects.update(state=PhaseState.ENDED, ended_at=timezone.now() + timedelta(seconds=1))
    Job.objects.filter(id=job.id).update(published_batch=3)

    told = selectors.job_snapshot(job.id)

    assert [len(told[kind]) for kind in ("phases", "events", "metrics", "groups")] == [2, 2, 2, 2]
    assert told.get("truncated") == ["phases", "events", "metrics", "rewards", "groups"], "cut without a word"
    assert selectors.jobs_snapshot(job.project_id)["truncated"] == ["jobs"]
    assert selectors.machines_snapshot("default")["truncated"] == ["edits"]
