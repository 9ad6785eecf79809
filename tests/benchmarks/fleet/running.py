"""Runs one side: retags the machines, submits its jobs, waits until all train, observes them for a while, cancels them.

Takes an installation of paced machines (`cluster.running`). Whatever ends a run, none of its jobs goes on. An audit
that is not whole, a wasted token or a failed session makes a run invalid: it raises RunFailed.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamlessflow.cli.local.machines import LocalMachine
from seamlessflow.client import Client
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.types.tags import Role
from tests.benchmarks.cluster.running import Cluster, RunFailed
from tests.benchmarks.cluster.workloads import SEED
from tests.benchmarks.fleet.jobs import FleetJob
from tests.benchmarks.fleet.observing import Observer, Seen
from tests.benchmarks.fleet.sides import NUM_MACHINES, Side
from tests.fakes.broken_machine import FOLDER

DEFAULT_PROJECT = "default"
PACED_MACHINE = "tests.benchmarks.cluster.paced_machine"
NUM_RUNNERS = 4
POLL_S = 0.25
BROKEN = "broken-machines"  # the folder of the installation that tells which machines are broken
NUM_WARM_UPS = 2  # versions of each job before a side is observed: engines and trainers were started by then
START_LIMIT_S = 240.0
WAIT_LIMIT_S = 120.0
LEDGER_S = 2.5  # machines report closed intervals with their heartbeats
WORKING = tuple(f"node-{number}" for number in range(NUM_MACHINES))


def machines() -> tuple[LocalMachine, ...]:
    working = (LocalMachine(name, (Role.ROLLOUT, Role.TRAIN), module=PACED_MACHINE) for name in WORKING)
    runners = (
        LocalMachine(f"runner-{number}", (Role.AGENT,), module=PACED_MACHINE) for number in range(NUM_RUNNERS)
    )
    return (*working, *runners)


def environment(home: Path) -> Mapping[str, str]:
    """Return what the machines' programs are told, besides what every installation tells them."""
    return {FOLDER: str(home / BROKEN)}


@dataclass(frozen=True, slots=True)
class Fleet:
    cluster: Cluster

    @property
    def client(self) -> Client:
        return self.cluster.client

    @property
    def observer(self) -> Observer:
        return Observer(self.client, self.cluster.stack.urls.database_url, WORKING)

    def measure(self, side: Side) -> Seen:
        """Return what a side did in its window. Raises RunFailed."""
        self.retag(side)
        with self.jobs_running(side) as job_ids:
            self.await_versions(job_ids, NUM_WARM_UPS)
            seen = self.observe(job_ids, side.observed_s)
            losses = {job_id: self.observer.losses(job_id) for job_id in job_ids}
        self.check(losses)
        return seen

    def observe(self, job_ids: Sequence[str], duration_s: float) -> Seen:
        since = self.observer.now()
        time.sleep(duration_s)
        until = self.observer.now()
        time.sleep(LEDGER_S)
        return self.observer.seen(job_ids, since, until)

    @contextmanager
    def jobs_running(self, side: Side) -> Iterator[list[str]]:
        """Submit the side's jobs, in its order; cancel them at the end."""
        job_ids: list[str] = []
        try:
            job_ids.extend(
                self.submit(job, max_staleness=side.max_staleness, tag=side.tag_of(job)) for job in side.jobs
            )
            yield job_ids
        finally:
            for job_id in job_ids:
                self.cluster.cancel(job_id)

    def submit(
        self,
        job: FleetJob,
        *,
        max_staleness: int,
        tag: str | None = None,
        train_tag: str | None = None,
        priority: int = 0,
        project: str = DEFAULT_PROJECT,
    ) -> str:
        spec = job.spec(
            *self.files(job), max_staleness=max_staleness, tag=tag, train_tag=train_tag, priority=priority
        )
        return str(self.client.job_submit(spec, project=project)["id"])

    def files(self, job: FleetJob) -> tuple[Path, Path]:
        from tests.benchmarks.cluster.endless_model import Shape, endless_model_write  # it loads torch

        endless = endless_model_write(self.models / "endless", shape=Shape(), seed=SEED)
        return job.write(endless, self.models)

    @property
    def models(self) -> Path:
        return self.cluster.stack.home.root / "models"

    def retag(self, side: Side) -> None:
        known = {one["name"]: one for one in self.client.machine_list()}
        for name, tags in zip(WORKING, side.tags(), strict=True):
            if sorted(known[name]["tags"]) != sorted(tags):
                self._edit(known[name], {"tags": tags}, side.name)

    def edit(self, name: str, **changes: object) -> None:
        self._edit(self.client.machine_get(name), changes, "a fault")

    def _edit(self, machine: Mapping[str, Any], changes: Mapping[str, object], reason: str) -> None:
        self.client.machine_edit(
            machine["id"], changes=changes, reason=f"benchmark: {reason}", generation=machine["generation"]
        )

    def await_versions(self, job_ids: Sequence[str], version: int) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        while late := [job for job in map(self.client.job_get, job_ids) if job["latest_version"] < version]:
            told = ", ".join(
                f"{job['name']} is {job['state']} at {job['latest_version']} ({job['state_reason']})"
                for job in late
            )
            if time.monotonic() > deadline_s or any(job["state"] in TERMINAL_JOB_STATES for job in late):
                raise RunFailed(f"not at version {version} after {START_LIMIT_S:.0f} s: {told}")
            time.sleep(POLL_S)

    def check(self, losses: Mapping[str, tuple[int, int]]) -> None:
        """Raise RunFailed if a job lost something. `losses`: wasted tokens and failed sessions, by job."""
        for job_id, (num_tokens, num_sessions) in losses.items():
            audit = self.client.job_part(job_id, "audit")
            if not audit["ok"] or num_tokens or num_sessions:
                raise RunFailed(
                    f"{job_id} wasted {num_tokens} tokens and {num_sessions} sessions; its audit is {audit}"
                )


def awaited(condition: Callable[[], bool], what: str) -> float:
    """Wait until a condition holds, and return after how many seconds it did. Raises RunFailed."""
    started_s = time.monotonic()
    while not condition():
        if time.monotonic() - started_s > WAIT_LIMIT_S:
            raise RunFailed(f"{what} is not so after {WAIT_LIMIT_S:.0f} s")
        time.sleep(POLL_S)
    return time.monotonic() - started_s
