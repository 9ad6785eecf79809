"""Evaluations in the control plane: submission, showing and keeping the best version, the end of a job, the audit."""

import json
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.live.rows import job_row
from seamlessflow.control_plane.live.selectors import group_rows, job_objects
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.policies.services.versions import versions_prune
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.trajectories.models import Evaluation, RolloutGroup
from seamlessflow.control_plane.trajectories.selectors.audit import job_audit
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, group_make, publication_of
from tests.fixtures.stored_files import artifact_path


def evaluated_job(cast: Cast, **changes: Any) -> Job:
    return cast.job(is_running=True, evaluation={"tasks": str(cast.tasks)}, **changes)


def measured(
    job: Job, version: int, pass_at_1: float | None, reward: float = 0.0, state: str = "finished"
) -> Evaluation:
    """Write an evaluation of one task as a gateway does."""
    now = timezone.now()
    state_of_group = "evaluated" if state == "finished" else "evaluating"
    RolloutGroup.objects.create(
        id=new_id(), project_id=job.project_id, job=job, index=0, task_index=0, size=4, state=state_of_group,
        evaluation_version=version, created_at=now,
    )  # fmt: skip
    return Evaluation.objects.create(
        id=new_id(), project_id=job.project_id, job=job, version=version, state=state, num_tasks=1, samples_per_task=4,
        pass_at_1=pass_at_1, reward_mean=reward, started_at=now,
        pass_at_k={} if pass_at_1 is None else {"1": pass_at_1, "4": 1.0},
    )  # fmt: skip


def got(cast: Cast, job: Job, path: str = "") -> Any:
    response = cast.member.call("GET", f"jobs/{show_id(IdKind.JOB, job.id)}{path}")
    assert response.status_code == 200, response.content
    return json.loads(response.content)


def test_held_out_tasks_are_resolved_and_errors_name_their_field(cast: Cast) -> None:
    assert evaluated_job(cast).evaluation_tasks_path == str(cast.tasks)
    assert cast.job().evaluation_tasks_path == ""
    bad = cast.tasks.with_name("bad.jsonl")
    bad.write_text('{"question": 1}\nno json\n')
    for tasks, detail in (
        (str(cast.tasks.with_name("none.jsonl")), "does not exist"),
        ("/etc/passwd", "is not under MODEL_ROOTS"),
        (str(bad), "line 2 is not JSON"),
    ):
        with pytest.raises(ApplicationError) as refused:
            cast.job(evaluation={"tasks": tasks})
        (fault,) = refused.value.faults
        assert fault.field == "evaluation.tasks"
        assert detail in fault.detail


def test_the_best_version_is_chosen_by_pass_at_1_then_reward_then_age(cast: Cast) -> None:
    job, other = evaluated_job(cast), evaluated_job(cast, name="other")
    assert got(cast, job)["best_version"] is None
    measured(other, 7, 1.0, 1.0)
    best = []
    for version, pass_at_1, reward in ((0, 0.5, 0.5), (2, 0.5, 0.6), (4, 0.5, 0.6), (6, None, 0.0)):
        measured(job, version, pass_at_1, reward)
        best.append(got(cast, job)["best_version"])
    measured(job, 8, None, state="running")

    assert best == [0, 2, 2, 2]
    page = json.loads(cast.member.call("GET", "jobs").content)["results"]
    assert {row["name"]: row["best_version"] for row in page} == {"calculator": 2, "other": 7}
    assert job_row(job_objects().get(id=job.id))["best_version"] == 2


def test_evaluations_are_listed_with_their_progress_for_people_with_access(cast: Cast) -> None:
    job = evaluated_job(cast)
    measured(job, 0, 0.25, 0.4)
    measured(job, 2, None, state="running")

    rows = got(cast, job, "/evaluations")["results"]

    assert [(row["version"], row["state"], row["num_tasks_done"], row["num_tasks"]) for row in rows] == [
        (2, "running", 0, 1),
        (0, "finished", 1, 1),
    ]
    assert (rows[1]["pass_at_1"], rows[1]["pass_at_k"]) == (0.25, {"1": 0.25, "4": 1.0})
    outside = cast.outsider.call("GET", f"jobs/{show_id(IdKind.JOB, job.id)}/evaluations")
    assert outside.status_code == 404


def test_training_groups_and_held_out_groups_are_listed_separately(cast: Cast) -> None:
    job = evaluated_job(cast)
    trained = group_make(job, 0)
    measured(job, 2, 0.5)

    listed = {query: got(cast, job, f"/groups{query}")["results"] for query in ("", "?evaluation=2")}

    assert [row["id"] for row in listed[""]] == [show_id(IdKind.GROUP, trained.id)]
    assert [row["evaluation_version"] for row in listed["?evaluation=2"]] == [2]
    assert [row["id"] for row in group_rows([job.id])[job.id]] == [show_id(IdKind.GROUP, trained.id)]
    refused = cast.member.call("GET", f"jobs/{show_id(IdKind.JOB, job.id)}/groups?evaluation=best")
    assert refused.status_code == 400
    assert b"'best' is not accepted" in refused.content


def test_retention_keeps_the_best_version_and_one_being_measured(cast: Cast) -> None:
    job = evaluated_job(cast)
    for version in range(1, 8):
        publication = publication_of(job, version)
        PolicyVersion.objects.create(
            project_id=job.project_id, job=job, version=version, batch_number=version, uri=publication.uri
        )
        path = artifact_path(publication.uri)
        assert path is not None
        path.mkdir(parents=True)
    measured(job, 2, 0.5)
    measured(job, 3, 0.25)
    measured(job, 4, None, state="running")

    assert versions_prune() == 2

    kept = PolicyVersion.objects.filter(job=job, deleted_at=None, version__gt=0).order_by("version")
    assert list(kept.values_list("version", flat=True)) == [2, 4, 5, 6, 7], (
        "it may be named after any from 4 on"
    )

    Evaluation.objects.filter(job=job, version=4).update(version=5, state="finished", pass_at_1=0.75)
    assert versions_prune() == 2
    assert list(kept.values_list("version", flat=True)) == [5, 6, 7]


def test_a_job_waits_for_the_evaluation_of_its_last_version(cast: Cast) -> None:
    job, plain = evaluated_job(cast), cast.job(is_running=True)
    Job.objects.filter(id__in=[job.id, plain.id]).update(latest_version=2, published_batch=2)

    def waits() -> dict[Any, bool]:
        return {view.id: view.awaits_evaluation for view in snapshot_load().jobs}

    assert waits() == {job.id: True, plain.id: False}
    evaluation = measured(job, 2, None, state="running")
    assert waits()[job.id]
    Evaluation.objects.filter(id=evaluation.id).update(state="finished")
    assert not waits()[job.id]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE trajectory_group SET state = 'ready'",
        "UPDATE trajectory_group SET batch_number = 1",
        "UPDATE trajectory_group SET evaluation_version = NULL",
        "UPDATE trajectory_evaluation SET num_tasks = 2",
    ],
)
def test_the_audit_finds_incomplete_held_out_groups(cast: Cast, damage: str) -> None:
    job = evaluated_job(cast)
    measured(job, 0, 0.5)

    def faults() -> set[str]:
        return {check.name for check in job_audit(job).checks if not check.ok}

    assert faults() == set()
    with connection.cursor() as cursor:
        cursor.execute(damage)
    assert "held_out_never_trained" in faults()
