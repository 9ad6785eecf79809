"""An installation for benchmarks: the real planes and supervisors, on which one job after another is run and observed.

Enters: machines, a job spec, a side of the comparison. Leaves: a `Window` per run. Every run is a new job, so engines
and trainer start afresh; the machines are retagged before it, over REST.
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
from tests.benchmarks.measuring import ROOT

POLL_S = 0.5
NUM_WARM_UP_VERSIONS = 3  # the first batches meet empty queues


class RunFailed(RuntimeError):
    """A job of the benchmark did not complete."""


@dataclass(frozen=True, slots=True)
class Cluster:
    stack: Stack
    machines: tuple[LocalMachine, ...]
    client: Client

    async def run(self, side: Side, spec: Mapping[str, Any]) -> Window:
        """Run one job to its end. Raises RunFailed."""
        return await asyncio.to_thread(self._run, side, spec)

    def _run(self, side: Side, spec: Mapping[str, Any]) -> Window:
        for machine in self.machines:
            seen = self.client.machine_get(machine.name)
            self.client.machine_edit(
                seen["id"],
                changes={"tags": tags_of(side, machine)},
                reason=f"benchmark: {side.name}",
                generation=seen["generation"],
            )
        algorithm = {**spec["algorithm"], "max_staleness": side.max_staleness}
        job = self.client.job_submit({**spec, "algorithm": algorithm})
        working = [machine.name for machine in self.machines if Role.AGENT not in machine.tags]
        observer = Observer(
            self.client, self.stack.urls.database_url, self.stack.processes, job, machines=working
        )
        self._await_version(job["id"], NUM_WARM_UP_VERSIONS)
        observer.cpu_mark()
        last_version = spec["train"]["num_updates"]
        self._await_version(job["id"], last_version)
        observer.cpu_mark()
        self._await_end(job["id"])
        return observer.window(NUM_WARM_UP_VERSIONS, last_version)

    def _await_version(self, job_id: str, version: int) -> None:
        while (job := self.client.job_get(job_id))["latest_version"] < version:
            if job["state"] in TERMINAL_JOB_STATES:
                raise RunFailed(f"{job['name']} ended {job['state']}: {job['state_reason']}")
            time.sleep(POLL_S)

    def _await_end(self, job_id: str) -> None:
        while (job := self.client.job_get(job_id))["state"] not in TERMINAL_JOB_STATES:
            time.sleep(POLL_S)
        audit = self.client.job_part(job_id, "audit")
        if job["state"] != "completed" or not audit["ok"]:
            raise RunFailed(f"{job['name']} ended {job['state']}: {job['state_reason']}; audit {audit}")


@asynccontextmanager
async def cluster_running(
    folder: Path, machines: tuple[LocalMachine, ...], *, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Cluster]:
    """Bring an installation up in `folder`; its machines find the benchmark's own programs."""
    home = Home(folder).create()
    import_paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    surroundings = {**os.environ, "PYTHONPATH": import_paths, **(environ or {})}
    async with running_stack(home, machines, environ=surroundings) as stack:
        await welcome(stack)
        with client_of(home) as client:
            yield Cluster(stack, machines, client)
