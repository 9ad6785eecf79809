"""Machines over REST and in the admin site, uploads, accounts, commands, health and metrics."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.db import connection
from django.http import HttpResponse
from django.test import Client

from seamlessflow.control_plane.accounts.models import Project, Token, User
from seamlessflow.control_plane.accounts.services.people import sign_in_token_create
from seamlessflow.control_plane.cluster.models import Machine, PoolGrant
from seamlessflow.control_plane.cluster.services import doorbells
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.trajectories.services.partitions import node_partitions_ensure
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, Person, worker_make


def machine_path(machine: Machine) -> str:
    return f"machines/{show_id(IdKind.MACHINE, machine.id)}"


def test_machine_edit_needs_a_fresh_etag_a_reason_and_good_tags(cast: Cast) -> None:
    machine = worker_make("alpha", "rollout").machine
    path = machine_path(machine)
    body = {"tags": ["rollout", "train"], "reason": "may train too"}

    assert cast.operator.call("PATCH", path, body).status_code == 428
    assert cast.operator.call("PATCH", path, body, **{"If-Match": '"7"'}).status_code == 412
    assert cast.operator.call("PATCH", path, {"tags": []}, **{"If-Match": '"1"'}).status_code == 400
    bad = cast.operator.call("PATCH", path, body | {"tags": ["Bad Tag"]}, **{"If-Match": '"1"'})
    unknown = cast.operator.call("PATCH", path, body | {"tagz": []}, **{"If-Match": '"1"'})
    done = cast.operator.call("PATCH", path, body, **{"If-Match": '"1"'})

    assert (bad.status_code, unknown.status_code) == (400, 400)
    assert b"'Bad Tag'" in bad.content
    assert b"tagz" in unknown.content
    assert (done.status_code, done["ETag"]) == (200, '"2"')
    assert json.loads(done.content)["tags"] == ["rollout", "train"]
    event = Event.objects.get(kind="machine.edited")
    assert (event.reason, event.author) == ("may train too", "user:olga")
    assert event.data["before"] == {"tags": ["rollout"]}


def test_only_staff_edit_machines_and_granted_pools_are_hidden(cast: Cast) -> None:
    machine = worker_make("alpha", "rollout").machine
    change = {"is_cordoned": True, "reason": "test"}

    assert cast.member.call("PATCH", machine_path(machine), change, **{"If-Match": '"1"'}).status_code == 403
    assert cast.outsider.call("GET", machine_path(machine)).status_code == 200
    PoolGrant.objects.create(pool="default", project=cast.member.project)
    assert cast.outsider.call("GET", machine_path(machine)).status_code == 404
    assert json.loads(cast.member.call("GET", "machines").content)["count"] == 1


def test_draining_a_machine_cordons_it(cast: Cast) -> None:
    machine = worker_make("alpha", "rollout").machine

    cast.operator.call(
        "PATCH", machine_path(machine), {"is_draining": True, "reason": "repair"}, **{"If-Match": '"1"'}
    )

    machine.refresh_from_db()
    assert (machine.is_draining, machine.is_cordoned, machine.generation) == (True, True, 2)


def test_registering_prints_a_token_and_keeps_the_machine(cast: Cast) -> None:
    first, second = io.StringIO(), io.StringIO()

    call_command("register_machine", "alpha", "--tags", "rollout,train", stdout=first)
    call_command("register_machine", "alpha", "--rotate", stdout=second)

    assert first.getvalue().startswith("sfm_")
    assert first.getvalue() != second.getvalue()
    assert Machine.objects.get().tags == ["rollout", "train"]
    assert Token.objects.filter(kind="machine", revoked_at=None).count() == 1
    with pytest.raises(CommandError, match="Bad Tag"):
        call_command("register_machine", "beta", "--tags", "Bad Tag")
    assert Machine.objects.count() == 1


@pytest.mark.django_db
def test_several_commands_run_in_one_process_until_one_fails() -> None:
    written = io.StringIO()
    commands = (["ensure_owner"], ["create_sign_in_link"], ["register_machine", "alpha", "--tags", "rollout"])

    call_command("run_commands", *map(json.dumps, commands), stdout=written)

    nothing, link, token = json.loads(written.getvalue())
    assert nothing == ""
    assert "/signin/sfl_" in link
    assert token.startswith("sfm_")
    with pytest.raises(CommandError, match="there is no user 'nobody'"):
        call_command(
            "run_commands",
            json.dumps(["register_machine", "beta"]),
            json.dumps(["create_sign_in_link", "--user", "nobody"]),
        )
    assert Machine.objects.filter(name="beta").exists()


@pytest.mark.django_db
def test_the_first_commands_of_an_installation_work() -> None:
    link, token = io.StringIO(), io.StringIO()

    call_command("ensure_owner")
    call_command("ensure_owner")
    call_command("create_sign_in_link", stdout=link)
    call_command("create_token", "--project", "default", "--name", "ci", stdout=token)

    assert (User.objects.count(), Project.objects.get().slug) == (1, "default")
    secret = token.getvalue().strip()
    assert not Token.objects.filter(digest__contains=secret).exists()
    assert Client().get("/api/v1/jobs", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    assert "/signin/sfl_" in link.getvalue()


def test_a_sign_in_link_works_once_and_only_looking_at_it_does_not_use_it(cast: Cast) -> None:
    _, secret = sign_in_token_create(user=cast.member.user, author="system")
    browser, other = Client(), Client()

    assert browser.get(f"/signin/{secret}").status_code == 200
    signed_in = browser.post(f"/signin/{secret}")
    again = other.post(f"/signin/{secret}")

    assert (signed_in.status_code, signed_in["Location"], again.status_code) == (302, "/", 410)
    assert browser.get("/api/v1/jobs").status_code == 200
    assert other.get("/api/v1/jobs").status_code == 401


def test_browser_session_needs_the_csrf_token_to_write(cast: Cast) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(cast.member.user)

    refused = browser.post("/api/v1/jobs", json.dumps(cast.spec()), content_type="application/json")

    assert refused.status_code == 403
    assert b"CSRF" in refused.content


def test_a_token_is_shown_once_listed_without_its_secret_and_revocable(cast: Cast) -> None:
    created = json.loads(cast.member.call("POST", "tokens", {"name": "ci"}).content)
    bearer = {"Authorization": f"Bearer {created['secret']}"}

    assert Client().get("/api/v1/jobs", headers=bearer).status_code == 200
    assert created["secret"].encode() not in cast.member.call("GET", "tokens").content
    assert cast.outsider.call("DELETE", f"tokens/{created['id']}").status_code == 404
    assert cast.member.call("DELETE", f"tokens/{created['id']}").status_code == 204
    assert Client().get("/api/v1/jobs", headers=bearer).status_code == 401


def upload(person: Person, name: str, data: bytes, query: str = "") -> HttpResponse:
    file = io.BytesIO(data)
    file.name = name
    response: HttpResponse = Client().post(  # type: ignore[assignment]
        f"/api/v1/uploads{query}", {"file": file}, headers={"Authorization": f"Bearer {person.secret}"}
    )
    return response


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def test_a_browser_uploads_with_its_session_but_not_without_the_csrf_token(cast: Cast) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast.member.user)
    client.get("/")
    token = client.cookies["seamlessflow_csrf"].value
    upload = SimpleUploadedFile("tasks.jsonl", b"{}\n" * 100_000)
    refused = client.post("/api/v1/uploads", {"file": upload})
    assert refused.status_code == 403
    upload.seek(0)
    taken = client.post("/api/v1/uploads", {"file": upload}, headers={"X-CSRFToken": token})
    assert taken.status_code == 201, taken.content
    assert taken.json()["num_bytes"] == 300_000
    assert list(settings.INCOMING_DIR.iterdir()) == []


def test_uploaded_model_and_tasks_make_a_job_of_their_project_only(cast: Cast) -> None:
    model = tar_of(
        *((tarfile.TarInfo(f"model/{path.name}"), path.read_bytes()) for path in cast.model.iterdir())
    )
    shown_model = json.loads(upload(cast.member, "model.tar.gz", model, "?unpack=true").content)
    shown_tasks = json.loads(upload(cast.member, "tasks.jsonl", cast.tasks.read_bytes()).content)
    spec = cast.spec(
        model={"source": shown_model["uri"]}, environment={"name": "calculator", "tasks": shown_tasks["uri"]}
    )

    assert cast.member.call("POST", "jobs", spec).status_code == 201
    refused = cast.outsider.call("POST", "jobs", spec)
    assert refused.status_code == 400
    assert b"no artifact" in refused.content
    assert shown_tasks["num_bytes"] == cast.tasks.stat().st_size
    assert not list(settings.INCOMING_DIR.iterdir())


def test_uploads_are_listed_in_their_project_and_found_by_digest(cast: Cast) -> None:
    tasks = json.loads(upload(cast.member, "tasks.jsonl", b"{}\n").content)
    other = json.loads(upload(cast.member, "other.jsonl", b"[]\n").content)

    page = json.loads(cast.member.call("GET", "uploads").content)
    assert [artifact["id"] for artifact in page["results"]] == [other["id"], tasks["id"]]
    found = json.loads(cast.member.call("GET", f"uploads?sha256={tasks['sha256']}").content)
    assert [artifact["uri"] for artifact in found["results"]] == [tasks["uri"]]
    assert json.loads(cast.outsider.call("GET", "uploads").content)["count"] == 0
    refused = cast.member.call("GET", "uploads?sha256=abc")
    assert refused.status_code == 400
    assert b"64 digits" in refused.content


def _link() -> tarfile.TarInfo:
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return link


@pytest.mark.parametrize(
    "data,word",
    [
        (tar_of((tarfile.TarInfo("../out"), b"x")), b"leaves its folder"),
        (tar_of((tarfile.TarInfo("/etc/out"), b"x")), b"leaves its folder"),
        (tar_of((_link(), b"")), b"neither a file nor a folder"),
        (b"no archive", b"not a tar"),
    ],
)
def test_an_unsafe_archive_leaves_nothing(cast: Cast, data: bytes, word: bytes) -> None:
    response = upload(cast.member, "model.tar", data, "?unpack=true")

    assert response.status_code == 400
    assert word in response.content
    assert not Artifact.objects.exists()
    assert not list(settings.INCOMING_DIR.iterdir())
    assert not list(Path(settings.ARTIFACT_ROOT, "uploads").glob("*"))


def test_an_upload_that_is_too_large_is_refused_before_it_is_stored(
    cast: Cast, settings: pytest.MonkeyPatch
) -> None:
    settings.MAX_UPLOAD_BYTES = 100  # type: ignore[attr-defined]

    response = upload(cast.member, "big", b"x" * 101)

    assert response.status_code == 413
    assert b"100 bytes" in response.content
    assert not Artifact.objects.exists()


def test_the_admin_site_edits_machines_through_the_service(cast: Cast) -> None:
    cast.owner.user.is_superuser = True
    cast.owner.user.save()
    machine = worker_make("alpha", "rollout").machine
    browser = Client()
    browser.force_login(cast.owner.user)
    url = f"/admin/cluster/machine/{machine.id}/change/"
    form = {
        "tags": "rollout,train", "pool": "lab", "cost": "2.5", "reason": "by hand", "seen_generation": "1",
    }  # fmt: skip

    assert browser.get(url).status_code == 200
    free = browser.post(url, form | {"cost": "0"})
    assert b"0 is not accepted; accepted: 0.01 to 1000" in free.content
    assert browser.post(url, form).status_code == 302
    stale = browser.post(url, form)

    machine.refresh_from_db()
    assert b"edited the machine in the meantime" in stale.content
    assert (machine.tags, machine.pool, machine.cost) == (["rollout", "train"], "lab", 2.5)
    assert machine.generation == 2
    assert Event.objects.get(kind="machine.edited").reason == "by hand"


@pytest.mark.parametrize(
    "page",
    [
        "jobs/job",
        "scheduling/phase",
        "policies/policyversion",
        "common/event",
        "accounts/token",
        "accounts/user",
    ],
)
def test_the_lists_of_the_admin_site_open(cast: Cast, page: str) -> None:
    cast.job()
    cast.owner.user.is_superuser = True
    cast.owner.user.save()
    browser = Client()
    browser.force_login(cast.owner.user)

    assert browser.get(f"/admin/{page}/").status_code == 200


def test_metrics_and_health_routes_answer(cast: Cast) -> None:
    cast.job()
    worker_make("alpha", "rollout")

    text = Client().get("/metrics").content.decode()

    assert 'seamlessflow_jobs{state="queued"} 1.0' in text
    assert 'seamlessflow_machines{state="down"} 1.0' in text
    assert "seamlessflow_http_requests_total" in text
    assert Client().get("/healthz").status_code == 200


def test_the_schema_pages_open_without_the_internet(cast: Cast) -> None:
    assert cast.member.call("GET", "schema").status_code == 200
    page = cast.member.call("GET", "schema/ui").content.decode()
    assert "https://" not in page.replace("https://www.w3.org", "")


@pytest.mark.django_db
def test_a_migration_creates_partitions_ahead_and_a_second_one_creates_none() -> None:
    from django.utils import timezone

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'trajectory_node'::regclass")
        assert cursor.fetchone() == (3,)
    assert node_partitions_ensure(today=timezone.now().date()) == []


def test_a_dead_broker_neither_blocks_nor_raises(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbells, "_outage", doorbells._Outage())
    for _ in range(3):
        doorbells.doorbell_send(machine_name="alpha", phase_id=new_id(), fence=1)

    assert len([record for record in caplog.records if "doorbell broker is down" in record.message]) == 1
