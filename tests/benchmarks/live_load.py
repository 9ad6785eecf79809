"""A live job without machines: rows change as in a demo, and the feeder publishes them, five times
a second.

`python -m tests.benchmarks.live_load JOB_UUID` prints `ready 0` once it runs. Every tick changes
metrics, an event, two intervals of machines and the job's row, so each of the topics `jobs`,
`job:<id>` and `machines` has a delta per tick.
"""

import sys
import time
from datetime import timedelta
from uuid import UUID, uuid4

import django

django.setup()

from django.utils import timezone  # noqa: E402 - models may be imported only once Django is set up

from seamlessflow.control_plane.cluster.models import Machine  # noqa: E402
from seamlessflow.control_plane.cluster.services.machines import machine_register  # noqa: E402
from seamlessflow.control_plane.common.models import SubjectType  # noqa: E402
from seamlessflow.control_plane.common.services import event_record  # noqa: E402
from seamlessflow.control_plane.jobs.models import Job  # noqa: E402
from seamlessflow.control_plane.live.feeder import TICK_S, Feeder  # noqa: E402
from seamlessflow.control_plane.telemetry.models import LedgerInterval, MetricPoint  # noqa: E402

METRICS = ("reward/mean", "train/loss", "train/entropy", "train/kl", "staleness/mean")


def main(job_id: UUID) -> None:
    job = Job.objects.get(id=job_id)
    names = ("alpha", "beta")
    for name in names:
        if not Machine.objects.filter(name=name).exists():
            machine_register(name=name, tags=["rollout", "train"], author="system")
    machines = list(Machine.objects.filter(name__in=names))
    feeder, boot_id = Feeder(), uuid4()
    feeder.tick()
    print("ready 0", flush=True)
    due_s, number = time.monotonic(), int(time.time() * 10)
    while True:
        number += 1
        _change(job, machines, boot_id, number)
        feeder.tick()
        due_s += TICK_S
        time.sleep(max(0.0, due_s - time.monotonic()))


def _change(job: Job, machines: list[Machine], boot_id: UUID, number: int) -> None:
    now = timezone.now()
    Job.objects.filter(id=job.id).update(waiting_reason=f"{number % 97} groups are ready, 8 are needed")
    MetricPoint.objects.bulk_create(
        MetricPoint(project_id=job.project_id, job=job, name=name, step=number, value=number % 13 / 13)
        for name in METRICS
    )
    event_record(
        kind="phase.state", subject_type=SubjectType.JOB, subject_id=job.id, job_id=job.id, project_id=job.project_id,
        from_state="starting", to_state="active", reason="the engine answers", author="machine:alpha",
    )  # fmt: skip
    LedgerInterval.objects.bulk_create(
        LedgerInterval(
            machine=machine, job=job, project_id=job.project_id, boot_id=boot_id, seq=number, state="serving",
            started_at=now - timedelta(seconds=TICK_S), ended_at=now,
        )
        for machine in machines
    )  # fmt: skip


if __name__ == "__main__":
    main(UUID(sys.argv[1]))
