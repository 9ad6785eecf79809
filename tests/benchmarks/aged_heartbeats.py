"""Measures what a heartbeat from a machine with a running phase sends to the database, and how long
it takes.

`python -m tests.benchmarks.aged_heartbeats JOB_UUID NUM` creates NUM machines, each with a running
job like that one. It prints, as JSON on one line, the statements and milliseconds of each heartbeat
of the last machine.
"""

import json
import sys
import time
from uuid import UUID

import django

django.setup()

from django.db import connection  # noqa: E402 - models may be imported only once Django is set up
from django.test.utils import CaptureQueriesContext, setup_test_environment  # noqa: E402

from seamlessflow.control_plane.cluster.models import Machine  # noqa: E402
from seamlessflow.control_plane.common.ids import new_id  # noqa: E402
from seamlessflow.control_plane.jobs.models import Job  # noqa: E402
from seamlessflow.control_plane.policies.models import PolicyVersion  # noqa: E402
from seamlessflow.core.lifecycle.phases import PhaseState  # noqa: E402
from seamlessflow.core.protocol.worker import Interval, PhaseReport  # noqa: E402
from seamlessflow.core.types.ledger import IdleCause, LedgerState  # noqa: E402
from seamlessflow.core.types.tags import Role  # noqa: E402
from tests.fixtures.control_plane import Worker, phase_make, worker_make  # noqa: E402

NUM_WARM_UPS = 3
NUM_REPEATS = 15
FIRST_FENCE = 2_000_000_000


def main(job_id: UUID, num: int) -> None:
    setup_test_environment()
    present = Machine.objects.filter(name__startswith="beating-").count()
    for number in range(present, present + num - 1):
        worker, phase = _machine_make(job_id, number)
        worker.heartbeat(phases=[phase])
    beating, report = _machine_make(job_id, present + num - 1)
    statements, times_ms = [], []
    for number in range(NUM_WARM_UPS + NUM_REPEATS):
        beating.monotonic_s += 1.0
        with CaptureQueriesContext(connection) as queries:
            started_s = time.perf_counter()
            _beat(beating, report)
            elapsed_ms = (time.perf_counter() - started_s) * 1000
        if number >= NUM_WARM_UPS:
            statements.append(len(queries))
            times_ms.append(elapsed_ms)
    print(json.dumps({"statements": statements, "ms": times_ms}), flush=True)


def _machine_make(job_id: UUID, number: int) -> tuple[Worker, PhaseReport]:
    """Create a machine with a running job of its own."""
    worker = worker_make(f"beating-{number}", "rollout")
    Machine.objects.filter(id=worker.machine.id).update(last_fence=FIRST_FENCE)
    job = Job.objects.get(id=job_id)
    job.id, job.name, job._state.adding = new_id(), f"job of beating-{number}", True
    job.latest_version = job.published_batch = 0
    job.save()
    PolicyVersion.objects.create(project_id=job.project_id, job=job, version=0, uri="versions/0")
    phase = phase_make(job, worker.machine, Role.ROLLOUT)
    return worker, PhaseReport(phase_id=phase.id, fence=phase.fence, state=PhaseState.STARTING)


def _beat(worker: Worker, report: PhaseReport) -> None:
    """Send a heartbeat with an interval that the server does not know yet, and with the phase's
    current state."""
    end_s = worker.monotonic_s
    span = Interval(
        seq=worker.num_acked, state=LedgerState.IDLE, cause=IdleCause.NO_REQUESTS, start_s=end_s - 1.0, end_s=end_s
    )  # fmt: skip
    reply = worker.heartbeat(phases=[report], intervals=[span])
    worker.num_acked = reply.num_intervals_acked


if __name__ == "__main__":
    main(UUID(sys.argv[1]), int(sys.argv[2]))
