"""A job whose agents return no rewards pauses itself, says why, and tries again when it is
resumed."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.services.leases import plan_apply
from seamlessflow.control_plane.trajectories.models import RolloutGroup, Session
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, group_make
from tests.fixtures.gateway_world import SECRET, GatewayWorld
from tests.fixtures.repository import ROOT
from tests.fixtures.services import ValkeyUrls

CRASH = "agent.py exited with code 1: ModuleNotFoundError: No module named 'tools'"
JOB = "SELECT desired, state, state_reason FROM jobs_job"


async def fail_groups(world: GatewayWorld, agent: PhaseClaims, *, num_groups: int) -> None:
    """Let every session of every group fail until this many groups are dropped."""
    while world.sql("SELECT count(*) FROM trajectory_group WHERE state = 'dropped'")[0][0] < num_groups:
        groups = await world.lease(agent)
        sessions = [session["session_id"] for group in groups for session in group["sessions"]]
        finishes = [{"session_id": session, "failure": CRASH} for session in sessions]
        status, _ = await world.phase_post(agent, "/runner/v1/sessions/ended", {"finishes": finishes})
        assert status == 200


def control_plane_environ(world: GatewayWorld, valkey: ValkeyUrls, folder: Path) -> dict[str, str]:
    return os.environ | {
        "DATABASE_URL": world.database_url,
        "BROKER_URL": valkey.broker,
        "EVENTS_URL": valkey.events,
        "SEAMLESSFLOW_SECRET_KEY": SECRET,
        "ARTIFACT_ROOT": str(folder),
        "DJANGO_SETTINGS_MODULE": "seamlessflow.control_plane.settings",
        "PYTHONPATH": str(ROOT / "platform"),
    }


RESUME = """
import sys, django
django.setup()
from seamlessflow.control_plane.jobs.services.moves import job_desire
from seamlessflow.core.lifecycle.jobs import DesiredJobState
job_desire(job_id=sys.argv[1], desired=DesiredJobState.RUN, reason="mended", author="test")
"""


async def test_a_job_whose_agents_always_crash_pauses_itself_and_says_why(
    gateway_world: GatewayWorld, embedded_valkey: ValkeyUrls, tmp_path: Path
) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", num_engines=0)
    await fail_groups(world, world.make_phase(Role.AGENT), num_groups=8)

    async def is_asked_to_pause() -> bool:
        return bool(world.sql(JOB)[0][0] == "pause")

    environ = control_plane_environ(world, embedded_valkey, tmp_path)
    command = [sys.executable, "-m", "django", "run_scheduler", "--alive-file", str(tmp_path / "alive")]
    scheduler = subprocess.Popen(command, env=environ)  # noqa: ASYNC220
    try:
        await world.until(is_asked_to_pause, what="the job pauses itself", timeout_s=60)
        ((author, reason),) = world.sql("SELECT author, reason FROM common_event WHERE kind = 'job.desired'")
        assert author == "platform"
        assert (
            reason
            == f"8 groups in a row were dropped because too few sessions got a reward; the last error: {CRASH}"
        )

        async def is_pausing() -> bool:
            return world.sql(JOB)[0][1:] in [("pausing", reason), ("paused", reason)]

        await world.until(is_pausing, what="the job goes to its pause, with the reason")

        resume = [sys.executable, "-c", RESUME, str(world.job_id)]
        await asyncio.to_thread(subprocess.run, resume, env=environ, check=True)

        await asyncio.sleep(3.0)  # several cycles of the scheduler
        assert world.sql(JOB)[0][0] == "run", "what was dropped before a resume counts after it"
    finally:
        scheduler.kill()
        scheduler.wait()


def finalize(job: Job, causes: Sequence[str]) -> None:
    """Finalize groups one after another: '' means that the group had its rewards, others were
    dropped for that cause."""
    first = RolloutGroup.objects.filter(job=job).count()
    for index, cause in enumerate(causes, start=first):
        group = group_make(job, index)
        RolloutGroup.objects.filter(id=group.id).update(
            state="dropped" if cause else "ready", drop_cause=cause, finalized_at=timezone.now()
        )
        if cause == "too_few_rewarded":
            Session.objects.create(
                id=group.id,
                project_id=job.project_id,
                job=job,
                group=group,
                month="2026-11-01",
                slot=0,
                state="failed",
                reason=f"error {index}",
                key_digest=group.id.bytes,
                opened_at=timezone.now(),
                closed_at=timezone.now(),
            )


def cycle(job: Job) -> str:
    """Run one cycle of the scheduler and return the job's desired state."""
    from seamlessflow.control_plane.jobs.services.self_pause import barren_jobs_pause

    barren_jobs_pause()
    plan_apply(decide(snapshot_load()))
    return Job.objects.get(id=job.id).desired


@pytest.mark.django_db(transaction=True)
def test_only_consecutive_groups_without_rewards_count_and_resuming_restarts_the_count(cast: Cast) -> None:
    job = cast.job(is_running=True)
    barren = ["too_few_rewarded"] * 7
    for cause in ("", "no_contrast", "stale"):
        finalize(job, [*barren, cause])
        assert cycle(job) == "run", cause
    finalize(job, barren)
    assert cycle(job) == "run"
    finalize(job, ["too_few_rewarded"])
    assert cycle(job) == "pause"

    shown: dict[str, Any] = json.loads(cast.owner.call("GET", f"jobs/{job.id}").content)
    reason = "8 groups in a row were dropped because too few sessions got a reward; the last error: error 31"
    assert (shown["desired"], shown["state_reason"]) == ("pause", reason)
    event = Event.objects.get(kind="job.desired")
    assert (event.author, event.reason) == ("platform", reason)

    assert cast.owner.call("POST", f"jobs/{job.id}/resume", {"reason": "mended"}).status_code == 200
    assert cycle(job) == "run"
    finalize(job, barren)
    assert cycle(job) == "run"
    finalize(job, ["too_few_rewarded"])
    assert cycle(job) == "pause"

    cast.owner.call("POST", f"jobs/{job.id}/resume", {})
    cycle(job)
    cast.owner.call("POST", f"jobs/{job.id}/pause", {"reason": "by hand"})
    cycle(job)
    assert Job.objects.get(id=job.id).state_reason == "paused by request"


@pytest.mark.django_db(transaction=True)
def test_held_out_tasks_without_rewards_do_not_pause_a_job_and_the_job_sets_the_number(cast: Cast) -> None:
    spec = {"name": "calculator", "tasks": str(cast.tasks), "pause_after_dropped_groups": 2}
    job = cast.job(is_running=True, environment=spec)
    finalize(job, ["too_few_rewarded"])
    for index in range(5):
        RolloutGroup.objects.filter(id=group_make(job, 100 + index).id).update(
            state="evaluated", evaluation_version=0, finalized_at=timezone.now() + timedelta(seconds=1)
        )
    assert cycle(job) == "run"
    finalize(job, ["too_few_rewarded"])
    assert cycle(job) == "pause"


def end(job: Job, index: int, reasons: Sequence[str], **fields: Any) -> None:
    """Let the slots of a new group end, each with a failure of this reason or, without one, with a reward."""
    group = group_make(job, index)
    for slot, reason in enumerate(reasons):
        Session.objects.create(
            id=uuid4(),
            project_id=job.project_id,
            job=job,
            group=group,
            month="2026-11-01",
            slot=slot,
            state="failed" if reason else "closed",
            reason=reason,
            key_digest=uuid4().bytes,
            opened_at=timezone.now(),
            closed_at=timezone.now(),
            **fields,
        )


@pytest.mark.django_db(transaction=True)
def test_equal_first_errors_pause_a_job_before_it_drops_a_group(cast: Cast) -> None:
    from seamlessflow.control_plane.jobs.services import self_pause

    job = cast.job(is_running=True)
    end(job, 0, [f"agent.py (pid {slot}) exited with code 2" for slot in range(16)], failure="agent")
    end(job, 1, ["its runner is gone"] * 4, failure="machine")

    assert self_pause.breaches_pause() == [job.id]
    event = Event.objects.get(kind="job.desired")
    assert event.author == "platform"
    assert event.reason.startswith("the first 16 sessions failed with the same error (agent): agent.py")

    cast.owner.call("POST", f"jobs/{job.id}/resume", {"reason": "mended"})
    assert self_pause.breaches_pause() == [], "what failed before a resume counts after it"


@pytest.mark.django_db(transaction=True)
def test_the_error_of_an_agent_is_shown_before_one_of_the_platform(cast: Cast) -> None:
    spec = {"name": "calculator", "tasks": str(cast.tasks), "pause_after_dropped_groups": 1}
    job = cast.job(is_running=True, environment=spec)
    end(job, 0, ["can't open file '/srv/agents/agent.py'"], failure="agent")
    Session.objects.create(
        id=uuid4(),
        project_id=job.project_id,
        job=job,
        group=RolloutGroup.objects.get(job=job),
        month="2026-11-01",
        slot=0,
        attempt=2,
        state="failed",
        reason="its runner is gone",
        failure="machine",
        key_digest=uuid4().bytes,
        opened_at=timezone.now(),
        closed_at=timezone.now(),
    )
    RolloutGroup.objects.update(state="dropped", drop_cause="too_few_rewarded", finalized_at=timezone.now())
    assert cycle(job) == "pause"
    assert "can't open file '/srv/agents/agent.py'" in Event.objects.get(kind="job.desired").reason
