"""Deleting by policy and by hand: what is deleted, what stays, and what a crash in the middle
leaves."""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
import zstandard
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from seamlessflow.control_plane.celery import app
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.telemetry.models import LedgerInterval, LogChunk, MetricPoint
from seamlessflow.control_plane.trajectories.models import Session
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, Person, group_make, phase_make, worker_make
from tests.fixtures.stored_files import job_folder

LONG_AGO = timedelta(days=400)
BACK_UP_LOCK = 0x5EA71E57  # what a back-up holds in the database while it copies


def background_run() -> None:
    """Run everything that the background process does periodically, once."""
    app.loader.import_default_modules()
    for entry in app.conf.beat_schedule.values():
        app.tasks[entry["task"]]()


def ended_job(cast: Cast, *, ago: timedelta = LONG_AGO, versions: int = 3, **changes: Any) -> Job:
    """An ended job with weights on disk, ten bytes per version, and two checkpoints."""
    job = cast.job(**changes)
    for number in range(1, versions + 1):
        folder = job_folder(job.id) / "versions" / str(number)
        file_write(folder / "model.safetensors", 10)
        PolicyVersion.objects.create(
            project_id=job.project_id, job=job, version=number, batch_number=number, uri=folder.as_uri(), num_bytes=10
        )  # fmt: skip
    for number in (2, 3):
        file_write(job_folder(job.id) / "checkpoints" / f"batch-{number}" / "state.pt", 1000)
    ended_at = timezone.now() - ago
    Job.objects.filter(id=job.id).update(
        state="completed", ended_at=ended_at, created_at=ended_at, latest_version=versions, published_batch=versions
    )  # fmt: skip
    PolicyVersion.objects.filter(job=job).update(published_at=ended_at)
    return Job.objects.get(id=job.id)


def file_write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def bytes_under(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def upload_make(cast: Cast, *, ago: timedelta = LONG_AGO) -> tuple[Artifact, Path]:
    identifier = new_id()
    folder = cast.model.parent / "artifacts" / "uploads" / str(identifier)
    file_write(folder / "content", 20)
    artifact = Artifact.objects.create(
        id=identifier, project=cast.owner.project, name="tasks.jsonl", uri=(folder / "content").as_uri(),
        num_bytes=20, sha256="0" * 64, created_by=cast.owner.user,
    )  # fmt: skip
    Artifact.objects.filter(id=identifier).update(created_at=timezone.now() - ago)
    return artifact, folder


TOKENS = zstandard.compress(np.array([5, 7], dtype="<i4").tobytes())


def nodes_make(job: Job, *, month: str = "2020-01-01") -> Session:
    group = group_make(job, 0)
    session = Session.objects.create(
        id=new_id(), project_id=job.project_id, job=job, group=group, month=month, slot=0, state="closed",
        key_digest=new_id().bytes, reward=1.0, num_turns=1, num_sampled_tokens=2, opened_at=timezone.now(),
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO trajectory_node (month, session_id, node_index, project_id, job_id, kind, num_tokens, "
            "token_ids, turn_id, created_at) SELECT %s, %s, i, %s, %s, 2, 2, %s, gen_random_uuid(), "
            "now() - interval '1 day' FROM generate_series(0, 2) i",
            [month, session.id, job.project_id, job.id, TOKENS],
        )
    return session


def num_nodes(job: Job) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM trajectory_node WHERE job_id = %s", [job.id])
        ((number,),) = cursor.fetchall()
    return int(number)


def delete(person: Person, *items: Mapping[str, object], **body: object) -> tuple[int, dict[str, Any]]:
    answer = person.call("POST", "storage/deletions", {"items": items, **body})
    return answer.status_code, json.loads(answer.content)


def of_job(job: Job, kind: str = "job", **fields: object) -> dict[str, object]:
    return {"kind": kind, "id": show_id(IdKind.JOB, job.id), **fields}


def test_the_files_of_an_ended_job_shrink_to_its_last_version(cast: Cast) -> None:
    job = ended_job(cast, train={"num_updates": 3, "keep_versions": 3})

    background_run()

    assert bytes_under(job_folder(job.id)) <= 10, "bytes left of the job's checkpoints and versions"
    kept = PolicyVersion.objects.filter(job=job, deleted_at=None, version__gt=0)
    assert list(kept.values_list("version", flat=True)) == [3]


def test_an_upload_is_deleted_when_no_job_uses_it_and_stays_while_one_does(cast: Cast) -> None:
    (used, _), (unused, folder) = upload_make(cast), upload_make(cast)
    job = ended_job(cast)
    job.spec["environment"]["tasks"] = f"artifact://{show_id(IdKind.ARTIFACT, used.id)}"
    job.save(update_fields=["spec"])

    background_run()

    listed = json.loads(cast.member.call("GET", "uploads").content)["results"]
    assert [row["id"] for row in listed] == [show_id(IdKind.ARTIFACT, used.id)]
    assert not folder.exists()
    assert not Artifact.objects.filter(id=unused.id).exists()


def test_old_logs_events_points_and_ledger_rows_are_reduced(cast: Cast) -> None:
    job, alpha = ended_job(cast), worker_make("alpha", "rollout")
    phase = phase_make(job, alpha.machine, Role.ROLLOUT)
    phase.state = "ended"
    phase.save()
    LogChunk.objects.create(
        project_id=job.project_id, phase=phase, stream="engine", offset=0, num_bytes=1, data=b"x"
    )
    Event.objects.filter(job_id=job.id).update(at=timezone.now() - LONG_AGO)
    MetricPoint.objects.bulk_create(
        MetricPoint(project_id=job.project_id, job=job, name="train/loss", step=step, value=step)
        for step in range(2000)
    )
    begin = (timezone.now() - LONG_AGO).replace(minute=0, second=0, microsecond=0)
    LedgerInterval.objects.bulk_create(
        LedgerInterval(
            machine=alpha.machine, state="serving" if number % 2 else "training", mean_in_flight=number % 2 or None,
            started_at=begin + timedelta(seconds=10 * number), ended_at=begin + timedelta(seconds=10 * number + 10),
        )
        for number in range(720)
    )  # fmt: skip

    background_run()

    left = {
        "ledger": LedgerInterval.objects.filter(machine=alpha.machine).count(),
        "logs": LogChunk.objects.filter(phase=phase).count(),
        "events": Event.objects.filter(job_id=job.id, kind="job.state").count(),
        "points": MetricPoint.objects.filter(job=job).count(),
    }
    assert left == {"ledger": 4, "logs": 0, "events": 0, "points": 500}


def test_rolled_up_points_are_returned_as_before(cast: Cast) -> None:
    job = ended_job(cast)
    MetricPoint.objects.bulk_create(
        MetricPoint(project_id=job.project_id, job=job, name="train/loss", step=step, value=(step * 7) % 31)
        for step in range(1900)
    )

    def columns() -> Any:
        return json.loads(cast.member.call("GET", f"jobs/{show_id(IdKind.JOB, job.id)}/metrics").content)

    before = columns()
    background_run()
    background_run()

    assert columns() == before
    assert MetricPoint.objects.filter(job=job, num_points__isnull=False).count() == 475


def test_needed_data_stays(cast: Cast) -> None:
    live = cast.job(is_running=True)
    file_write(job_folder(live.id) / "checkpoints" / "batch-2" / "state.pt", 1000)
    nodes_make(live)
    pinned = ended_job(cast)
    PolicyVersion.objects.filter(job=pinned, version=1).update(is_pinned=True)
    source = ended_job(cast, name="source")
    session = nodes_make(source)
    Job.objects.filter(id=live.id).update(dataset={"jobs": []})
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO trajectory_dataset (project_id, job_id, position, group_id, session_ids) "
            "VALUES (%s, %s, 0, %s, %s)",
            [live.project_id, live.id, session.group_id, [session.id]],
        )

    background_run()

    assert (job_folder(live.id) / "checkpoints" / "batch-2").exists()
    assert num_nodes(live) == num_nodes(source) == 3
    kept = PolicyVersion.objects.filter(job=pinned, deleted_at=None, version__gt=0)
    assert list(kept.values_list("version", flat=True)) == [1, 3]
    for job, words in ((source, "trains on its trajectories"), (pinned, "pinned"), (live, "has not ended")):
        status, refused = delete(cast.owner, of_job(job))
        assert (status, words in refused["detail"]) == (409, True), refused
        assert Job.objects.get(id=job.id).deleted_at is None


def test_a_dry_run_says_what_a_deletion_frees_and_changes_nothing(cast: Cast) -> None:
    job = ended_job(cast, ago=timedelta(hours=1))
    background_run()
    kept = bytes_under(job_folder(job.id))

    status, answer = delete(
        cast.owner, of_job(job, "version", number=2), of_job(job, "checkpoint", number=3), dry_run=True
    )

    assert (status, answer["dry_run"], answer["num_bytes"]) == (200, True, 1010)
    assert bytes_under(job_folder(job.id)) == kept
    status, answer = delete(cast.owner, of_job(job, "version", number=2), reason="not needed")
    assert (status, answer["num_bytes"]) == (200, 10)
    background_run()
    assert bytes_under(job_folder(job.id)) == kept - 10
    event = Event.objects.get(kind="version.deleted", job_id=job.id)
    assert (event.author, event.reason, event.data["number"]) == ("user:olga", "not needed", 2)


def test_a_deleted_job_disappears_at_once_and_its_data_soon_after(cast: Cast) -> None:
    job, other = ended_job(cast, ago=timedelta(hours=1)), ended_job(cast, name="other")
    session = nodes_make(job)
    shown = show_id(IdKind.JOB, job.id)

    status, _ = delete(cast.owner, of_job(job), reason="a mistake")

    assert status == 200
    for path in (f"jobs/{shown}", f"sessions/{show_id(IdKind.SESSION, session.id)}",
                 f"groups/{show_id(IdKind.GROUP, session.group_id)}"):  # fmt: skip
        assert cast.owner.call("GET", path).status_code == 404
    assert [row["name"] for row in json.loads(cast.owner.call("GET", "jobs").content)["results"]] == ["other"]
    background_run()
    assert not Job.objects.filter(id=job.id).exists()
    assert num_nodes(job) == 0
    assert not job_folder(job.id).exists()
    assert job_folder(other.id).exists()
    (told,) = Event.objects.filter(subject_id=job.id)
    assert (told.kind, told.author, told.reason) == ("job.deleted", "user:olga", "a mistake")
    (row,) = [row for row in deletions(cast.owner) if row["kind"] == "job"]
    assert row["finished_at"] is not None


def deletions(person: Person) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(person.call("GET", "storage/deletions?limit=100").content)[
        "results"
    ]
    return rows


@pytest.mark.parametrize("killed_at", ["rename", "rmtree", "rows"])
def test_a_deletion_killed_halfway_is_completed_by_the_next_run(
    cast: Cast, killed_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seamlessflow.control_plane.storage.services import carrying_out
    from seamlessflow.control_plane.storage.services import retention as services

    job = ended_job(cast, ago=timedelta(hours=1))
    nodes_make(job)
    delete(cast.owner, of_job(job))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        match killed_at:
            case "rename":
                patch.setattr(Path, "rename", killed)
            case "rmtree":
                patch.setattr("shutil.rmtree", killed)
            case _:  # after nodes and prompts, before the rest
                patch.setattr(carrying_out, "_job_grown_remove", killed)
        with pytest.raises(KeyboardInterrupt):
            services.removals_run(now=timezone.now())

    assert cast.owner.call("GET", f"jobs/{show_id(IdKind.JOB, job.id)}").status_code == 404
    assert (num_nodes(job) == 0) == (killed_at == "rows")
    services.removals_run(now=timezone.now())
    assert not job_folder(job.id).exists()
    assert not list(job_folder(job.id).parent.glob(".deleting-*"))
    assert not Job.objects.filter(id=job.id).exists()


def test_trajectories_are_deleted_and_figures_stay(cast: Cast) -> None:
    job = ended_job(cast, ago=timedelta(hours=1))
    session = nodes_make(job)
    before = cast.owner.call("GET", f"jobs/{show_id(IdKind.JOB, job.id)}/summary").content

    assert delete(cast.owner, of_job(job, "trajectories"))[0] == 200
    background_run()

    assert num_nodes(job) == 0
    assert cast.owner.call("GET", f"jobs/{show_id(IdKind.JOB, job.id)}/summary").content == before
    tree = cast.owner.call("GET", f"sessions/{show_id(IdKind.SESSION, session.id)}")
    assert (tree.status_code, b"were deleted on" in tree.content) == (410, True)
    audit = json.loads(cast.owner.call("GET", f"jobs/{show_id(IdKind.JOB, job.id)}/audit").content)
    assert "trees_are_whole" not in [check["name"] for check in audit["checks"]]


def test_a_month_is_dropped_as_a_whole_once_nobody_keeps_a_session_of_it(cast: Cast) -> None:
    month_make("2024-03-01", "2024-04-01")
    first, second = ended_job(cast, ago=timedelta(hours=1)), ended_job(cast, ago=timedelta(hours=1))
    for job in (first, second):
        nodes_make(job, month="2024-03-01")

    delete(cast.owner, of_job(first, "trajectories"))
    background_run()
    assert (has_table("trajectory_node_2024_03"), num_nodes(first), num_nodes(second)) == (True, 0, 3)

    delete(cast.owner, of_job(second, "trajectories"))
    background_run()
    assert not has_table("trajectory_node_2024_03")


def test_old_trajectories_become_parquet_files_and_their_month_is_dropped(cast: Cast) -> None:
    month_make("2024-03-01", "2024-04-01")
    job = ended_job(cast)
    nodes_make(job, month="2024-03-01")

    background_run()
    background_run()

    assert num_nodes(job) == 0, "tokens and messages stay for ever"
    assert not has_table("trajectory_node_2024_03")
    assert list(job_folder(job.id).rglob("*.parquet"))


def month_make(first: str, end: str) -> None:
    name = f"trajectory_node_{first[:7].replace('-', '_')}"
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE {name} PARTITION OF trajectory_node FOR VALUES FROM (%s) TO (%s)", [first, end]
        )


def has_table(name: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [name])
        return bool(cursor.fetchone() == (True,))


def test_nothing_is_deleted_while_a_back_up_copies(cast: Cast) -> None:
    job = ended_job(cast)
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}) as backup:
        backup.execute("SELECT pg_advisory_lock(%s)", [BACK_UP_LOCK])
        background_run()
        assert bytes_under(job_folder(job.id)) == 2030
    background_run()
    assert bytes_under(job_folder(job.id)) == 10


def test_a_project_can_override_the_policy_of_the_installation(cast: Cast) -> None:
    def policy(person: Person, query: str = "", **body: object) -> tuple[int, Any]:
        answer = person.call("PATCH" if body else "GET", f"storage/policy{query}", body or None)
        return answer.status_code, json.loads(answer.content)

    def value(name: str) -> tuple[object, bool]:
        _, shown = policy(cast.member)
        row = next(row for row in shown["settings"] if row["name"] == name)
        return row["value"], row["is_own"]

    assert value("logs_days") == (30, False)
    assert policy(cast.owner.operating(), "?installation=true", settings={"logs_days": 5})[0] == 200
    assert policy(cast.owner, "?installation=true", settings={"logs_days": 6})[0] == 403
    assert value("logs_days") == (5, False)
    assert policy(cast.owner, settings={"logs_days": None, "jobs_days": 3})[0] == 200
    assert value("logs_days") == (None, True)
    assert policy(cast.owner, reset=["logs_days"])[0] == 200
    assert value("logs_days") == (5, False)
    assert policy(cast.member, settings={"logs_days": 1})[0] == 403
    assert policy(cast.outsider, "?installation=true", settings={"logs_days": 1})[0] == 403
    status, refused = policy(cast.owner, settings={"logs_days": -1})
    assert (status, refused["errors"][0]["field"]) == (400, "logs_days")
    assert "accepted: a whole number of days" in refused["errors"][0]["detail"]
    assert Event.objects.filter(kind="retention.edited").count() == 3


def test_storage_is_shown_by_project_and_kind_without_reading_the_disk(
    cast: Cast, settings: Settings
) -> None:
    job = ended_job(cast, ago=timedelta(hours=1))
    nodes_make(job)
    upload_make(cast, ago=timedelta())
    background_run()
    settings.ARTIFACT_ROOT = Path("/nonexistent")

    (mine,) = json.loads(cast.owner.call("GET", "storage").content)["results"]

    assert mine["project"] == "default"
    assert mine["by_kind"]["checkpoints"] == 1000
    assert (mine["by_kind"]["versions"], mine["by_kind"]["uploads"]) == (20, 20)
    assert mine["by_kind"]["trajectories"] > 150
    page = json.loads(cast.owner.call("GET", "storage/jobs?limit=1").content)
    assert (page["count"], page["results"][0]["checkpoints_bytes"]) == (1, 1000)
    (theirs,) = json.loads(cast.outsider.call("GET", "storage").content)["results"]
    assert theirs["num_bytes"] == 0


def test_each_part_of_a_job_is_listed_with_what_it_frees_or_why_it_stays(cast: Cast) -> None:
    job = ended_job(cast, ago=timedelta(hours=1))
    background_run()  # keeps the newer checkpoint
    PolicyVersion.objects.filter(job=job, version=2).update(is_pinned=True)

    address = f"storage/jobs/{show_id(IdKind.JOB, job.id)}"
    told = json.loads(cast.member.call("GET", address).content)
    parts = {(part["kind"], part["number"]): part for part in told["items"]}

    assert list(parts) == [
        ("job", None), ("trajectories", None), ("logs", None), ("checkpoint", 3), ("version", 2), ("version", 3),
    ]  # fmt: skip
    assert (parts["checkpoint", 3]["num_bytes"], parts["checkpoint", 3]["refusal"]) == (1000, "")
    assert (
        parts["version", 2]["refusal"]
        == parts["job", None]["refusal"]
        == "version 2 is pinned; unpin it first"
    )
    assert told["dry_run"] is True
    assert told["num_bytes"] == sum(part["num_bytes"] for part in told["items"] if not part["refusal"])
    assert cast.outsider.call("GET", address).status_code == 404


def test_uploads_are_listed_by_size_with_the_job_that_uses_each(cast: Cast) -> None:
    small, _ = upload_make(cast, ago=timedelta())
    large, _ = upload_make(cast, ago=timedelta())
    Artifact.objects.filter(id=large.id).update(num_bytes=30)
    used = cast.job(name="reader")
    used.spec["environment"]["tasks"] = f"artifact://{show_id(IdKind.ARTIFACT, small.id)}"
    used.save(update_fields=["spec"])

    def uploads(person: Person, query: str = "") -> list[dict[str, Any]]:
        answer = person.call("GET", f"storage/uploads{query}")
        assert answer.status_code == 200, answer.content
        return list(json.loads(answer.content)["results"])

    assert [(row["num_bytes"], row["used_by"]) for row in uploads(cast.owner)] == [(30, ""), (20, "reader")]
    assert uploads(cast.owner, "?project=default") == uploads(cast.owner)
    assert uploads(cast.outsider) == []
    assert cast.outsider.call("GET", "storage/uploads?project=default").status_code == 400


def test_members_delete_what_they_created_and_owners_anything(cast: Cast) -> None:
    job = ended_job(cast, ago=timedelta(hours=1))
    assert delete(cast.member, of_job(job))[0] == 403
    assert (
        delete(cast.outsider, of_job(job), dry_run=True)[1]["items"][0]["refusal"] == "there is no such job"
    )
    Job.objects.filter(id=job.id).update(created_by=cast.member.user)
    assert delete(cast.member, of_job(job))[0] == 200
