"""An installation for benchmarks: the real planes and supervisors, on which one job after another
runs and is observed.

It takes machines, a job spec and a side of the comparison, and returns a `Window` per run. Every
run is a new job, so engines and trainer start afresh; before it, the machines are retagged over
REST.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamlessflow.cli.local.machines import LocalMachine
from seamlessflow.cli.local.stack import Stack, running_stack
from seamlessflow.cli.local.state import Home
from seamlessflow.cli.platform import client_of, welcome
from seamlessflow.client import Client
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.types.tags import Role
from tests.benchmarks.cluster.layouts import Side, tags_of
from tests.benchmarks.cluster.observing import Observer, Window
from tests.fixtures.repository import ROOT

POLL_S = 0.5
NUM_WARM_UP_VERSIONS = 4  # the first batches meet empty queues, and what may be begun ahead fills up
NUM_WARM_UP_VERSIONS_SYNCHRONOUS = 1
RUN_TIMEOUT_S = 240.0
CANCEL_TIMEOUT_S = 60.0


class RunFailed(RuntimeError):
    """A job of the benchmark could not be observed to its end."""


@dataclass(frozen=True, slots=True)
class Cluster:
    stack: Stack
    machines: tuple[LocalMachine, ...]
    client: Client

    async def run(self, side: Side, spec: Mapping[str, Any], *, num_versions: int) -> Window:
        """Run one job, observe `num_versions` versions after the first few, then cancel it. Raises
        RunFailed."""
        return await asyncio.to_thread(self._run, side, spec, num_versions)

    def _run(self, side: Side, spec: Mapping[str, Any], num_versions: int) -> Window:
        self.retag(side)
        num_warm_ups = NUM_WARM_UP_VERSIONS_SYNCHRONOUS if side.is_synchronous else NUM_WARM_UP_VERSIONS
        job_id = self.client.job_submit(spec)["id"]
        try:
            window = self._observe(job_id, first=num_warm_ups, last=num_warm_ups + num_versions)
        finally:
            self.cancel(job_id)
        audit = self.client.job_part(job_id, "audit")
        if not audit["ok"]:
            raise RunFailed(f"the audit of {spec['name']}, {side.name}, found {audit}")
        return window

    def clear(self) -> None:
        """End what a killed run left, because it would keep the machines. Raises RunFailed."""
        for job in self.client.job_list():
            if job["state"] not in TERMINAL_JOB_STATES:
                self.cancel(job["id"])

    def retag(self, side: Side) -> None:
        for machine in self.machines:
            seen = self.client.machine_get(machine.name)
            self.client.machine_edit(
                seen["id"],
                changes={"tags": tags_of(side, machine)},
                reason=f"benchmark: {side.name}",
                generation=seen["generation"],
            )

    def _observe(self, job_id: str, *, first: int, last: int) -> Window:
        working = [machine.name for machine in self.machines if Role.AGENT not in machine.tags]
        observer = Observer(
            self.client, self.stack.urls.database_url, self.stack.processes, job_id, machines=working
        )
        deadline_s = time.monotonic() + RUN_TIMEOUT_S
        self._await_version(job_id, first, deadline_s)
        observer.cpu_mark()
        self._await_version(job_id, last, deadline_s)
        observer.cpu_mark()
        return observer.window(first, last)

    def _await_version(self, job_id: str, version: int, deadline_s: float) -> None:
        while (job := self.client.job_get(job_id))["latest_version"] < version:
            if job["state"] in TERMINAL_JOB_STATES:
                raise RunFailed(f"{job['name']} ended {job['state']}: {job['state_reason']}")
            if time.monotonic() > deadline_s:
                raise RunFailed(
                    f"{job['name']} has version {job['latest_version']}, not yet {version}, after {RUN_TIMEOUT_S} s"
                )
            time.sleep(POLL_S)

    def cancel(self, job_id: str) -> None:
        if self.client.job_get(job_id)["state"] not in TERMINAL_JOB_STATES:
            self.client.job_edit(job_id, "cancel", reason="benchmark: observed")
        deadline_s = time.monotonic() + CANCEL_TIMEOUT_S
        while (job := self.client.job_get(job_id))["state"] not in TERMINAL_JOB_STATES:
            if time.monotonic() > deadline_s:
                raise RunFailed(
                    f"{job['name']} is {job['state']} {CANCEL_TIMEOUT_S} s after it was cancelled"
                )
            time.sleep(POLL_S)


@asynccontextmanager
async def cluster_running(
    folder: Path, machines: tuple[LocalMachine, ...], *, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Cluster]:
    """Start an installation in `folder`; its machines use the benchmark's own programs."""
    home = Home(folder).create()
    import_paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": import_paths, **(environ or {})}
    async with running_stack(home, machines, environ=environment, before_announced=welcome) as stack:
        with client_of(home) as client:
            cluster = Cluster(stack, machines, client)
            await asyncio.to_thread(cluster.clear)
            yield cluster
