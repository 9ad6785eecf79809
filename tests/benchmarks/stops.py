"""Sends SIGSTOP to each process in turn while a job runs: the job completes, no reward is wrong,
nothing is duplicated.

While a job runs on a local installation, the victim is stopped for STOP_S seconds and then
continues (a database as its whole process group, as a frozen container would be). Afterwards, rows
and events of the database are checked, not the installation's own audit. Then, on machines that
sleep instead of computing, an engine is stopped, to see how much of its rate of trained tokens the
job keeps, including the time until the stop is noticed.

STOPS in the environment selects victims, separated by commas; STOP_S shortens the stops.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import psycopg

from seamlessflow.client import ApiError, Client
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.types.ids import IdKind, parse_id
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.models import example_model, example_tasks
from tests.acceptance.platform_process import PlatformProcess, eventually, new_platform
from tests.benchmarks.cluster.layouts import MULTIPLEXED
from tests.benchmarks.cluster.running import Cluster
from tests.benchmarks.cluster.workloads import Workload
from tests.benchmarks.multiplexing import cluster_of, models_write
from tests.benchmarks.report import Bound, Goal, Measured, Quantity, Row
from tests.benchmarks.stops_checks import faults_found
from tests.fakes.pace import Pace

FOLDER = Path("build/bench/stops")
STOP_S = float(os.environ.get("STOP_S", "60"))
NUM_UPDATES = 60
STOPPED_AT_VERSION = 3
COMPLETE_WITHIN_S = 600.0

Victims = Callable[[PlatformProcess], list[psutil.Process]]
VICTIMS: Mapping[str, Victims] = {
    "engine of beta": lambda p: p.find("seamlessflow_workers.rollout.engine", under="--name beta"),
    "trainer": lambda p: p.find("seamlessflow_workers.train"),
    "agent runner": lambda p: p.find("seamlessflow_workers.agents"),
    "supervisor of beta": lambda p: p.find("seamlessflow_workers.supervisor", "--name beta"),
    "supervisor of alpha": lambda p: p.find("seamlessflow_workers.supervisor", "--name alpha"),
    "gateway": lambda p: p.find("seamlessflow.data_plane"),
    "web": lambda p: p.find("control_plane.asgi:application"),
    "scheduler": lambda p: p.find("run_scheduler"),
    "database": lambda p: [each for main in p.find("bin/postgres", "-D") for each in _with_children(main)],
}
PACED = Workload(
    ratio=3,
    num_machines=2,
    num_slots=8,
    groups_per_batch=4,
    num_versions=1,
    num_rounds=1,
    pace=Pace(step_s=0.01, load_s=0.05, wake_s=0.05, publish_s=0.05, train_token_s=0.01 / 8 / 3),
)
PACED_ENGINE = "tests.fakes.paced_engine"
WARM_UP_VERSIONS = 4
KEPT = Goal(0.4, of=Quantity.RATIO)


@dataclass(frozen=True, slots=True)
class Outcome:
    victim: str
    faults: Sequence[str]
    completed_after_s: float  # since the stop
    events: Sequence[str]


async def measure() -> Sequence[Row]:
    chosen = [name for name in os.environ.get("STOPS", "").split(",") if name] or [*VICTIMS, "paced engine"]
    outcomes = await asyncio.to_thread(_matrix, [name for name in chosen if name in VICTIMS])
    rows = [
        Row(
            f"{outcome.victim}: faults found",
            "faults",
            _one(len(outcome.faults)),
            "none",
            _one(0),
            Goal(0, bound=Bound.AT_MOST),
        )
        for outcome in outcomes
    ]
    if "paced engine" in chosen:
        rows.append(await _paced_row())
    return rows


def _one(value: float) -> Measured:
    return Measured((value,), min_repeats=1)


def _matrix(victims: Sequence[str]) -> list[Outcome]:
    if not victims:
        return []
    models = FOLDER.absolute() / "models"
    models.mkdir(parents=True, exist_ok=True)
    example_model(models / "calculator")
    example_tasks(models / "tasks.jsonl")
    installation = new_platform(FOLDER.absolute() / "home", model_root=models)
    installation.start()
    try:
        return [_told(_stopped(installation, models, victim)) for victim in victims]
    finally:
        installation.stop()


def _stopped(installation: PlatformProcess, models: Path, victim: str) -> Outcome:
    (scheduler,) = installation.find("run_scheduler")
    database_url = scheduler.environ()["DATABASE_URL"]
    with installation.client() as client:
        spec = calculator_spec(models, num_updates=NUM_UPDATES)
        job_id = client.job_submit(spec)["id"]
        eventually(
            lambda: _version(client, job_id) >= STOPPED_AT_VERSION, timeout_s=180, what="the first versions"
        )
        processes = eventually(lambda: VICTIMS[victim](installation), timeout_s=60, what=f"a {victim}")
        began_s = time.monotonic()
        with _standing_still(processes):
            time.sleep(STOP_S)
        eventually(
            lambda: _is_over(client, job_id), timeout_s=COMPLETE_WITHIN_S, what=f"the end, {victim} stopped"
        )
        completed_after_s = time.monotonic() - began_s
    faults, events = faults_found(database_url, parse_id(IdKind.JOB, job_id), num_updates=NUM_UPDATES)
    return Outcome(victim, faults, completed_after_s, events)


@contextlib.contextmanager
def _standing_still(processes: Sequence[psutil.Process]) -> Any:
    """All of them are stopped inside the block; those that still exist afterwards continue."""
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):  # killed for it, and replaced
                process.send_signal(number)
        if number is signal.SIGSTOP:
            yield


def _with_children(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _version(client: Client, job_id: str) -> int:
    return int(client.job_get(job_id)["latest_version"])


def _is_over(client: Client, job_id: str) -> bool:
    try:
        return client.job_get(job_id)["state"] in TERMINAL_JOB_STATES
    except ApiError:  # the web process stands still, or its database does
        return False


def _told(outcome: Outcome) -> Outcome:
    said = "; ".join(outcome.faults) or "no fault"
    sys.stdout.write(
        f"stops: {outcome.victim} for {STOP_S:g} s: {said}; over {outcome.completed_after_s:.0f} s after the stop\n"
    )
    for event in outcome.events:
        sys.stdout.write(f"    {event}\n")
    sys.stdout.flush()
    return outcome


async def _paced_row() -> Row:
    async with cluster_of(PACED, FOLDER.absolute()) as cluster:
        before, during = await asyncio.to_thread(_rates, cluster)
    return Row("trained tokens/s, engine stopped", "tokens/s", _one(during), "before", _one(before), KEPT)


def _rates(cluster: Cluster) -> tuple[float, float]:
    """Return the rates of trained tokens, for this long before the stop and during it."""
    cluster.retag(MULTIPLEXED)
    model, tasks = models_write(cluster, PACED)
    job_id = cluster.client.job_submit(PACED.spec(model, tasks, max_staleness=MULTIPLEXED.max_staleness))[
        "id"
    ]
    try:
        eventually(
            lambda: _version(cluster.client, job_id) >= WARM_UP_VERSIONS, timeout_s=240, what="the warm-up"
        )
        time.sleep(STOP_S)
        engines = _engines_of(cluster, "machine-1")
        with _standing_still(engines):
            time.sleep(STOP_S)
            return _rate(cluster, job_id, ago=2), _rate(cluster, job_id, ago=1)
    finally:
        cluster.cancel(job_id)


def _engines_of(cluster: Cluster, machine: str) -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    found = [
        process
        for process in children
        if PACED_ENGINE in " ".join(process.cmdline())
        and any(f"--name {machine}" in " ".join(parent.cmdline()) for parent in process.parents())
    ]
    assert found, f"no engine on {machine}"
    return found


def _rate(cluster: Cluster, job_id: str, *, ago: int) -> float:
    """Return tokens of published batches per second, in the `ago`-th stretch of STOP_S seconds
    before now."""
    with psycopg.connect(cluster.stack.urls.database_url) as connection:
        row = connection.execute(
            """SELECT coalesce(sum(b.num_trained_tokens), 0) FROM trajectory_batch b
               JOIN policies_policyversion v ON v.job_id = b.job_id AND v.batch_number = b.number
               WHERE b.job_id = %s
                 AND v.published_at > now() - make_interval(secs => %s)
                 AND v.published_at <= now() - make_interval(secs => %s)""",
            [_uuid(job_id), ago * STOP_S, (ago - 1) * STOP_S],
        ).fetchone()
    assert row is not None
    return float(row[0]) / STOP_S


def _uuid(job_id: str) -> UUID:
    return parse_id(IdKind.JOB, job_id)
