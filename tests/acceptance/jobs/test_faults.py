"""Processes are killed or stopped during a job: the job completes, and nothing is lost or duplicated.

Several victims die in one job, each after the job has gone on without the one before.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest

from seamlessflow.client import Client
from seamlessflow.core.types.ids import IdKind, parse_id
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.job_watching import assert_audit_holds, wait_for_version
from tests.acceptance.platform_process import POLL_S, PlatformProcess, eventually, kill_hard

APART = 3  # versions between two kills; each comes within a second of its version
NUM_UPDATES_WITHOUT_BETA = 5
Victims = Callable[[PlatformProcess], list[psutil.Process]]

VICTIMS: dict[str, Victims] = {
    "engine of beta": lambda p: p.find("seamlessflow_workers.rollout.engine", under="--name beta"),
    "trainer": lambda p: p.find("seamlessflow_workers.train"),
    "scheduler": lambda p: p.find("run_scheduler"),
    "celery workers": lambda p: p.find("-m celery") + p.find("seamlessflow_workers.supervisor.doorbell"),
    "broker": lambda p: p.find("valkey-server"),
    "supervisor of alpha": lambda p: p.find("seamlessflow_workers.supervisor", "--name alpha"),
    "gateway": lambda p: p.find("seamlessflow.data_plane"),
    "web": lambda p: p.find("control_plane.asgi:application"),
    "agent runner": lambda p: p.find("seamlessflow_workers.agents"),
    "database": lambda p: p.find("bin/postgres", "-D"),
    "fork servers": lambda p: p.find("seamlessflow_workers.process.fork_server"),
}


TOGETHER = {
    "the control plane": ("web", "scheduler", "celery workers"),
    "the data plane": ("gateway", "broker", "database"),
    "the machines": ("trainer", "engine of beta", "agent runner", "fork servers", "supervisor of alpha"),
}


def test_each_victim_dies_in_one_job() -> None:
    assert sorted(victim for victims in TOGETHER.values() for victim in victims) == sorted(VICTIMS)


@pytest.mark.parametrize("killed", TOGETHER)
def test_a_job_completes_with_nothing_lost_or_doubled_after_kill_9_of_each_process_of(
    killed: str, platform: PlatformProcess, model_root: Path
) -> None:
    num_updates = APART * (len(TOGETHER[killed]) + 2)
    with platform.client() as client:
        job = client.job_submit(calculator_spec(model_root, num_updates=num_updates))
        for number, victim in enumerate(TOGETHER[killed]):
            print("next to die:", victim)
            wait_through_faults(client, job["id"], 2 + APART * number)
            kill_hard(VICTIMS[victim](platform))

        job = client.job_wait(job["id"])
        assert job["latest_version"] == num_updates
        assert_audit_holds(client, job["id"])


def wait_through_faults(client: Client, job_id: str, version: int) -> None:
    """Wait for a version also while the web process is down."""
    job = next(
        job
        for job in client.job_watch(job_id, every_s=POLL_S)
        if job["ended_at"] or job["latest_version"] >= version
    )
    assert job["ended_at"] is None, f"{job['state']}: {job['state_reason']}"


def test_a_job_continues_while_the_engine_of_beta_is_stopped(
    platform: PlatformProcess, model_root: Path
) -> None:
    with platform.client() as client:
        # More updates than are possible before the stop is noticed, however fast the machine is.
        job = client.job_submit(calculator_spec(model_root, num_updates=10_000))
        wait_for_version(client, job["id"], 2)
        engines = VICTIMS["engine of beta"](platform)
        for engine in engines:
            engine.suspend()

        eventually(lambda: is_suspected(platform, job["id"]), timeout_s=60, what="the suspicion")
        version = client.job_get(job["id"])["latest_version"]
        wait_for_version(client, job["id"], version + NUM_UPDATES_WITHOUT_BETA)
        for engine in engines:
            with contextlib.suppress(psutil.NoSuchProcess):  # its supervisor killed it, and started another
                engine.resume()

        client.job_edit(job["id"], "cancel", reason="seen going on")
        ended = eventually(lambda: state_if_over(client, job["id"]), timeout_s=60, what="the end of the job")
        assert ended == "cancelled"
        assert_audit_holds(client, job["id"])


def state_if_over(client: Client, job_id: str) -> str | None:
    job = client.job_get(job_id)
    return str(job["state"]) if job["ended_at"] else None


def is_suspected(platform: PlatformProcess, job_id: str) -> bool:
    (scheduler,) = platform.find("run_scheduler")
    with psycopg.connect(scheduler.environ()["DATABASE_URL"]) as connection:
        said = connection.execute(
            "SELECT FROM common_event WHERE job_id = %s AND kind = 'engine.suspected'",
            [parse_id(IdKind.JOB, job_id)],
        )
        return said.fetchone() is not None
