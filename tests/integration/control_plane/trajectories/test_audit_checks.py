"""The audit and the trajectory API on rows as a gateway writes them: complete, then each with one fault."""

import json
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest
import zstandard
from django.db import connection
from django.utils import timezone

from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.trajectories.models import Batch, RolloutGroup, Session
from seamlessflow.control_plane.trajectories.selectors.audit import job_audit
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, phase_make, worker_make

MONTH = date(2026, 11, 1)


def execute(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def node_write(
    session: Session, index: int, parent: int | None, kind: int, num_tokens: int, **columns: Any
) -> None:
    row: dict[str, Any] = {
        "month": MONTH, "session_id": session.id, "node_index": index, "project_id": session.project_id,
        "job_id": session.job_id, "parent_index": parent, "kind": kind, "num_tokens": num_tokens,
        "turn_id": new_id(), "messages": json.dumps([{"role": "user", "content": "1 + 1"}]),
    } | columns  # fmt: skip
    execute(
        f"INSERT INTO trajectory_node ({', '.join(row)}) VALUES ({', '.join(['%s'] * len(row))})",
        *row.values(),
    )


def packed(num_tokens: int, dtype: str) -> bytes:
    return zstandard.compress(np.arange(num_tokens, dtype=dtype).tobytes())


@pytest.fixture
def job(cast: Cast) -> Job:
    """A running job with one trained batch: one group, one session, one turn."""
    job = cast.job(is_running=True)
    now = timezone.now()
    common: dict[str, Any] = {"project_id": job.project_id, "job": job}
    group = RolloutGroup.objects.create(
        id=new_id(), index=0, size=1, state="batched", batch_number=1, created_at=now, **common
    )
    session = Session.objects.create(
        id=new_id(), group=group, month=MONTH, slot=0, state="closed", key_digest=b"k", reward=1.0, num_turns=1,
        num_sampled_tokens=10, opened_at=now, closed_at=now, **common,
    )  # fmt: skip
    node_write(session, 0, None, 0, 5)
    node_write(
        session,
        1,
        0,
        2,
        10,
        version_spans=[0, 0, 4, 1],
        token_ids=packed(10, "<i4"),
        logprobs=packed(10, "<f4"),
    )
    Batch.objects.create(
        id=new_id(), number=1, state="applied", payload_sha256="", policy_version=0, num_groups=1, num_samples=1,
        num_tokens=15, num_trained_tokens=10, min_version=0, lease_phase_id=new_id(), lease_fence=1,
        lease_expires_at=now, created_at=now, **common,
    )  # fmt: skip
    PolicyVersion.objects.create(version=1, batch_number=1, uri="file:///none", **common)
    Job.objects.filter(id=job.id).update(published_batch=1, latest_version=1)
    return Job.objects.get(id=job.id)


def failed(job: Job) -> set[str]:
    report = job_audit(Job.objects.get(id=job.id))
    assert report.ok == all(check.ok for check in report.checks)
    return {check.name for check in report.checks if not check.ok}


def test_an_intact_job_passes_every_check(job: Job) -> None:
    assert failed(job) == set()


@pytest.mark.parametrize(
    "damage,check",
    [
        ("UPDATE policies_policyversion SET batch_number = NULL", "batches_published_once"),
        ("UPDATE trajectory_batch SET number = 2", "batches_numbered_without_gaps"),
        ("UPDATE trajectory_group SET batch_number = 2", "groups_in_one_batch"),
        ("UPDATE trajectory_session SET state = 'open'", "batched_sessions_closed"),
        ("UPDATE trajectory_node SET node_index = 3 WHERE kind = 2", "trees_are_whole"),
        ("UPDATE trajectory_node SET parent_index = NULL WHERE kind = 2", "trees_are_whole"),
        ("UPDATE trajectory_node SET version_spans = '{0,0,12,1}' WHERE kind = 2", "version_spans_add_up"),
        ("UPDATE trajectory_node SET version_spans = '{1,0}' WHERE kind = 2", "version_spans_add_up"),
        ("UPDATE trajectory_node SET version_spans = NULL WHERE kind = 2", "version_spans_add_up"),
        ("UPDATE trajectory_session SET num_turns = 2", "turns_recorded_once"),
        ("UPDATE trajectory_batch SET policy_version = 9", "staleness_bound_kept"),
    ],
)
def test_each_kind_of_damage_is_found_by_its_check(job: Job, damage: str, check: str) -> None:
    execute(damage)
    assert check in failed(job)


def test_logprobs_of_another_length_are_found(job: Job) -> None:
    execute("UPDATE trajectory_node SET logprobs = %s WHERE kind = 2", packed(9, "<f4"))
    assert failed(job) == {"logprobs_match_tokens"}


def test_a_hole_in_a_ledger_is_found(job: Job) -> None:
    machine = worker_make("alpha", "rollout").machine
    phase_make(job, machine, Role.ROLLOUT)
    for seq, (start, end) in enumerate([(1, 5), (5, 9), (10, 12)]):
        execute(
            "INSERT INTO telemetry_ledgerinterval (machine_id, seq, boot_id, state, cause, started_at, ended_at) "
            "VALUES (%s, %s, %s, 'serving', '', now() + make_interval(secs => %s), now() + make_interval(secs => %s))",
            machine.id, seq, UUID(int=1), start, end,
        )  # fmt: skip
    Job.objects.filter(id=job.id).update(ended_at=timezone.now() + timedelta(seconds=8))
    assert failed(job) == set()
    Job.objects.filter(id=job.id).update(ended_at=timezone.now() + timedelta(seconds=11))
    assert failed(job) == {"ledger_sums_to_wall_time"}


def test_a_phase_that_outlives_its_job_is_found(job: Job) -> None:
    phase_make(job, worker_make("alpha", "rollout").machine, Role.ROLLOUT)
    assert Phase.objects.count() == 1
    Job.objects.filter(id=job.id).update(state=JobState.COMPLETED)
    assert failed(job) == {"no_phase_outlives_the_job"}


def test_the_tree_of_a_session_has_spans_tokens_and_messages(cast: Cast, job: Job) -> None:
    shown = show_id(IdKind.SESSION, Session.objects.get().id)
    body = json.loads(cast.member.call("GET", f"sessions/{shown}?tokens=true").content)
    root, turn = body["nodes"]
    assert (root["kind"], root["versions"], root["messages"][0]["content"]) == ("root", [], "1 + 1")
    assert turn["versions"] == [{"start": 0, "end": 4, "version": 0}, {"start": 4, "end": 10, "version": 1}]
    assert turn["token_ids"] == list(range(10))
    assert turn["logprobs"] == [float(n) for n in range(10)]
    assert "token_ids" not in json.loads(cast.member.call("GET", f"sessions/{shown}").content)["nodes"][1]
    assert cast.outsider.call("GET", f"sessions/{shown}").status_code == 404


def test_groups_are_shown_only_to_their_project(cast: Cast, job: Job) -> None:
    shown = show_id(IdKind.JOB, job.id)
    page = json.loads(cast.member.call("GET", f"jobs/{shown}/groups?state=batched").content)
    assert page["count"] == 1
    group = json.loads(cast.member.call("GET", f"groups/{page['results'][0]['id']}").content)
    assert group["sessions"][0]["reward"] == 1.0
    assert cast.member.call("GET", f"jobs/{shown}/groups?state=lost").status_code == 400
    assert cast.outsider.call("GET", f"groups/{group['id']}").status_code == 404
    assert json.loads(cast.member.call("GET", f"jobs/{shown}/audit").content)["ok"] is True
