"""The job whose pages the benchmark `aged` measures, with as much of everything as one of its pages
shows, on two machines.

`python -m tests.benchmarks.aged_job JOB_UUID` adds rows to a running job. It prints, as JSON on one
line, the values of the parameters in its pages' addresses (named as in the REST API's schema), the
machines, and the cookies of a signed-in browser.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

import django

django.setup()

from django.test import Client  # noqa: E402 - models may be imported only once Django is set up
from django.test.utils import setup_test_environment  # noqa: E402
from django.utils import timezone  # noqa: E402

from seamlessflow.control_plane.accounts.models import User  # noqa: E402
from seamlessflow.control_plane.cluster.models import Machine  # noqa: E402
from seamlessflow.control_plane.common.ids import new_id  # noqa: E402
from seamlessflow.control_plane.common.models import Event, Removal, SubjectType  # noqa: E402
from seamlessflow.control_plane.jobs.models import Job  # noqa: E402
from seamlessflow.control_plane.policies.models import PolicyVersion  # noqa: E402
from seamlessflow.control_plane.scheduling.models import Phase  # noqa: E402
from seamlessflow.control_plane.telemetry.models import LogChunk, MetricPoint  # noqa: E402
from seamlessflow.control_plane.trajectories.models import (  # noqa: E402
    Batch,
    Evaluation,
    RolloutGroup,
    Session,
)
from seamlessflow.control_plane.uploads.models import Artifact  # noqa: E402
from seamlessflow.core.types.ids import IdKind, show_id  # noqa: E402
from seamlessflow.core.types.tags import Role  # noqa: E402
from tests.fixtures.control_plane import Worker, phase_make, worker_make  # noqa: E402
from tests.fixtures.forests import ForestShape, WrittenForest, forest_write  # noqa: E402

# Numbers beyond those of any past phase.
FIRST_FENCE = 1_000_000_000
NUM_UPDATES = 200
GROUPS_PER_UPDATE = 2
NUM_PHASES = 200
NUM_EVENTS = 1_000
NUM_METRICS = 20
NUM_EDITS = 30
NUM_UPLOADS = NUM_REMOVALS = 120
LOG_LINE = b"step 12: loss 0.5\n"
VISITOR = "u"


def main(job_id: UUID) -> None:
    setup_test_environment()
    job, now = Job.objects.get(id=job_id), timezone.now()
    _learning_make(job, now)
    job.refresh_from_db()
    workers = [worker_make("alpha", "rollout", "train"), worker_make("beta", "rollout")]
    for worker in workers:
        worker.heartbeat()
    Machine.objects.update(last_fence=FIRST_FENCE)
    phases = list(_phases(job, workers, now))
    Phase.objects.bulk_create(phases)
    for worker in workers:
        phase_make(job, worker.machine, Role.ROLLOUT)
    _record_make(job, workers, phases[0], now)
    forest = asyncio.run(_forest(job))
    print(json.dumps(_told(job, workers, phases[0], forest)), flush=True)


def _phases(job: Job, workers: list[Worker], now: datetime) -> Iterator[Phase]:
    for number in range(NUM_PHASES):
        leased_at = now - timedelta(minutes=NUM_PHASES - number)
        yield Phase(
            project_id=job.project_id, job=job, machine=workers[0].machine, fence=FIRST_FENCE - NUM_PHASES + number,
            role=(Role.ROLLOUT, Role.TRAIN)[number % 2].value, state="ended", leased_at=leased_at, ended_at=leased_at,
        )  # fmt: skip


def _learning_make(job: Job, now: datetime) -> None:
    """Create groups with their sessions, batches, versions, evaluations and metrics for NUM_UPDATES
    updates."""
    of_job = {"project_id": job.project_id, "job": job}
    groups = [
        RolloutGroup(
            **of_job, id=new_id(), index=index, size=1, state="batched", num_rewarded=1, reward_mean=0.5,
            reward_std=0.1, batch_number=1 + index // GROUPS_PER_UPDATE, created_at=now, ready_at=now, finalized_at=now,
        )
        for index in range(NUM_UPDATES * GROUPS_PER_UPDATE)
    ]  # fmt: skip
    RolloutGroup.objects.bulk_create(groups)
    Session.objects.bulk_create(
        Session(
            **of_job, id=new_id(), group=group, month=now.date().replace(day=1), slot=0, state="closed", reward=0.5,
            key_digest=group.id.bytes, num_turns=3, num_sampled_tokens=300, opened_at=now, closed_at=now,
        )
        for group in groups
    )  # fmt: skip
    updates = range(1, NUM_UPDATES + 1)
    Batch.objects.bulk_create(
        Batch(
            **of_job, id=new_id(), number=number, state="applied", payload_sha256="", policy_version=number - 1,
            num_groups=GROUPS_PER_UPDATE, num_samples=2, num_tokens=600, num_trained_tokens=500,
            lease_phase_id=new_id(), lease_fence=1, lease_expires_at=now, created_at=now, applied_at=now,
        )
        for number in updates
    )  # fmt: skip
    PolicyVersion.objects.bulk_create(
        PolicyVersion(
            **of_job,
            version=number,
            batch_number=number or None,
            uri=f"versions/{number}",
            num_bytes=10,
            published_at=now,
        )
        for number in (0, *updates)
    )
    Evaluation.objects.bulk_create(
        Evaluation(
            **of_job, id=new_id(), version=number, state="finished", num_tasks=4, samples_per_task=1, num_rewarded=4,
            reward_mean=0.5, pass_at_1=0.5, started_at=now, ended_at=now,
        )
        for number in range(10, NUM_UPDATES, 10)
    )  # fmt: skip
    MetricPoint.objects.bulk_create(
        MetricPoint(**of_job, name=f"train/metric_{name}", step=number, value=0.5, at=now)
        for name in range(NUM_METRICS)
        for number in updates
    )
    Job.objects.filter(id=job.id).update(
        published_batch=NUM_UPDATES,
        latest_version=NUM_UPDATES,
        created_at=now - timedelta(minutes=NUM_PHASES),
        started_at=now - timedelta(minutes=NUM_PHASES),
    )


def _record_make(job: Job, workers: list[Worker], phase: Phase, now: datetime) -> None:
    """Create events, edits of machines, uploads, removals, and the log of a phase."""
    moved = {"project_id": job.project_id, "job_id": job.id, "author": "gateway", "from_state": "open"}
    Event.objects.bulk_create(
        Event(
            **moved, subject_type=(SubjectType.GROUP, SubjectType.PHASE)[number % 2], subject_id=new_id(),
            kind=("group.state", "phase.state")[number % 2], to_state="ready", reason="all outcomes are in", at=now,
        )
        for number in range(NUM_EVENTS)
    )  # fmt: skip
    Event.objects.bulk_create(
        Event(
            subject_type=SubjectType.MACHINE, subject_id=worker.machine.id, kind="machine.edited",
            author="user:u", at=now,
        )
        for worker in workers
        for _ in range(NUM_EDITS)
    )  # fmt: skip
    Artifact.objects.bulk_create(
        Artifact(
            project_id=job.project_id, name=f"tasks {number}", uri=f"uploads/{number}", num_bytes=10, sha256="0" * 64
        )
        for number in range(NUM_UPLOADS)
    )  # fmt: skip
    Removal.objects.bulk_create(
        Removal(
            project_id=job.project_id, kind="version", subject_id=job.id, number=number, name=job.name, num_bytes=10,
            author="user:u", requested_at=now, finished_at=now,
        )
        for number in range(NUM_REMOVALS)
    )  # fmt: skip
    LogChunk.objects.create(
        project_id=job.project_id, phase=phase, stream="out", offset=0, num_bytes=len(LOG_LINE), data=LOG_LINE
    )


async def _forest(job: Job) -> WrittenForest:
    return await forest_write(
        os.environ["DATABASE_URL"],
        project_id=job.project_id,
        job_id=job.id,
        shape=ForestShape(),
        index=NUM_UPDATES * GROUPS_PER_UPDATE,
    )


def _told(job: Job, workers: list[Worker], phase: Phase, forest: WrittenForest) -> dict[str, object]:
    browser = Client()
    browser.force_login(User.objects.get(username=VISITOR))
    return {
        "job_id": show_id(IdKind.JOB, job.id),
        "machine_id": show_id(IdKind.MACHINE, workers[0].machine.id),
        "phase_id": show_id(IdKind.PHASE, phase.id),
        "group_id": show_id(IdKind.GROUP, forest.group_id),
        "session_id": show_id(IdKind.SESSION, forest.session_ids[0]),
        "index": 1,
        "slug": job.project.slug,
        "machines": [str(worker.machine.id) for worker in workers],
        "cookies": {name: cookie.value for name, cookie in browser.cookies.items()},
    }


if __name__ == "__main__":
    main(UUID(sys.argv[1]))
