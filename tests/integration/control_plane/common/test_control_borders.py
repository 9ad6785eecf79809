"""Who may access what: every route of `/api/v1`, found in the resolver, called by everybody who has
no right to it."""

import json
import re
import shutil
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import orjson
import pytest
from django.conf import settings
from django.test import Client
from django.urls import URLPattern, URLResolver
from django.utils import timezone

from seamlessflow.control_plane import api_urls
from seamlessflow.control_plane.cluster.models import Machine, PoolGrant
from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import LedgerInterval
from seamlessflow.control_plane.trajectories.models import RolloutGroup, Session
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.control_plane.worker_protocol import urls as worker_urls
from seamlessflow.core.artifacts.store_paths import upload_path
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import Heartbeat, MetricReport
from seamlessflow.core.types.ids import IdKind, parse_id, show_id
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import (
    Cast,
    Worker,
    order_of,
    phase_make,
    publication_of,
    worker_make,
    worker_post,
)

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# The description of the API contains nobody's data.
PUBLIC = {"schema", "schema/ui"}
ARGUMENT = re.compile(r"<(?:\w+:)?(\w+)>")


def routes(patterns: list[Any], prefix: str = "") -> Iterator[str]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield route


ROUTES = sorted(set(routes(api_urls.urlpatterns)) - PUBLIC)
# The world's session has no node yet.
ABSENT = {
    "jobs/<job:job_id>/trajectories/<str:table>": 404,
    "sessions/<session:session_id>/nodes/<int:index>": 404,
}
DETAILS = [route for route in ROUTES if "<" in route]
LISTS = ["jobs", "machines", "tokens"]


@pytest.fixture
def world(cast: Cast) -> dict[str, str]:
    """One object of each kind in the owner's project, on a machine of the project's own pool;
    public ids by argument."""
    job, worker = cast.job(is_running=True), worker_make("alpha", "rollout")
    Machine.objects.filter(id=worker.machine.id).update(pool="private")
    PoolGrant.objects.create(pool="private", project=cast.owner.project)
    phase = phase_make(job, worker.machine, Role.ROLLOUT)
    group, session = group_make(job)
    token = cast.owner.user.tokens.get(kind="api")
    return {
        "job_id": show_id(IdKind.JOB, job.id),
        "machine_id": show_id(IdKind.MACHINE, worker.machine.id),
        "phase_id": show_id(IdKind.PHASE, phase.id),
        "group_id": show_id(IdKind.GROUP, group.id),
        "session_id": show_id(IdKind.SESSION, session.id),
        "token_id": show_id(IdKind.TOKEN, token.id),
        "machine_token": worker.secret,
        "index": "0",
        "version": "0",
        "table": "no.such.table",
        "slug": cast.owner.project.slug,
        "pool": "private",
        "username": cast.member.user.username,
    }


def group_make(job: Job) -> tuple[RolloutGroup, Session]:
    now = timezone.now()
    group = RolloutGroup.objects.create(
        id=uuid4(), project_id=job.project_id, job=job, index=0, size=2, created_at=now
    )
    session = Session.objects.create(
        id=uuid4(), project_id=job.project_id, job=job, group=group, month=now.date().replace(day=1), slot=0,
        key_digest=b"k", opened_at=now,
    )  # fmt: skip
    return group, session


def address(route: str, world: dict[str, str]) -> str:
    return ARGUMENT.sub(lambda found: world[found[1]], route)


def answer(method: str, route: str, world: dict[str, str], secret: str | None) -> int:
    headers = {"If-Match": '"1"'} | ({"Authorization": f"Bearer {secret}"} if secret else {})
    response = Client().generic(
        method, f"/api/v1/{address(route, world)}", b"{}", content_type="application/json", headers=headers
    )
    assert response["Content-Type"] == "application/problem+json", (method, route, response.content)
    return response.status_code


def test_all_routes_are_found_and_the_owner_may_read_each(cast: Cast, world: dict[str, str]) -> None:
    assert {"jobs", "groups/<group:group_id>", "phases/<phase:phase_id>/logs"} <= set(ROUTES)
    for route in ROUTES:
        status = cast.owner.call("GET", address(route, world)).status_code
        assert status in ((ABSENT[route],) if route in ABSENT else (200, 405)), route


@pytest.mark.parametrize("route", DETAILS)
def test_an_outsider_is_told_that_nothing_exists(cast: Cast, world: dict[str, str], route: str) -> None:
    answers = {method: answer(method, route, world, cast.outsider.secret) for method in METHODS}

    assert set(answers.values()) <= {404, 405}
    assert 404 in answers.values()


@pytest.mark.parametrize("route", ROUTES)
def test_an_unknown_query_parameter_is_refused_by_name(cast: Cast, world: dict[str, str], route: str) -> None:
    for method in METHODS:
        response = cast.owner.call(method, f"{address(route, world)}?nonsense=1")
        if response.status_code == 405:
            continue
        assert response.status_code == 400, (method, response.content)
        (fault,) = json.loads(response.content)["errors"]
        assert fault["field"] == "nonsense"
        assert "is not a parameter of this address; accepted: " in fault["detail"]


def test_lists_are_empty_for_an_outsider(cast: Cast, world: dict[str, str]) -> None:
    for name in LISTS:
        body = orjson.loads(cast.outsider.call("GET", name).content)
        own = [row for row in body["results"] if row.get("project") == cast.outsider.project.slug]
        assert body["results"] == own, name


@pytest.mark.parametrize("route", ROUTES)
def test_nobody_gets_access_without_an_api_token(cast: Cast, world: dict[str, str], route: str) -> None:
    signed = order_of_world(world).credential
    for secret in (None, world["machine_token"], signed, "sft_unknown"):
        answers = {method: answer(method, route, world, secret) for method in METHODS}
        assert set(answers.values()) <= {401, 405}
        assert 401 in answers.values()


def order_of_world(world: dict[str, str]) -> Any:
    return order_of(Phase.objects.get(id=parse_id(IdKind.PHASE, world["phase_id"])))


def test_people_cannot_use_the_worker_protocol(
    cast: Cast, world: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "JOIN_TOKEN", "a join token that is nobody's")
    for route in routes(worker_urls.urlpatterns):
        path = ARGUMENT.sub(str(uuid4()), route)
        for secret in (cast.owner.secret, "", "sfp_a.b"):
            assert worker_post(path, b"{}", secret=secret).status_code == 401, route


def test_a_member_cannot_register_machines_or_use_the_project_of_another(cast: Cast) -> None:
    assert cast.member.call("POST", "machines", {"name": "gamma"}).status_code == 403
    assert cast.outsider.call("POST", "jobs?project=default", cast.spec()).status_code == 400
    assert cast.outsider.call("POST", "tokens", {"name": "x", "project": "default"}).status_code == 400
    assert not Job.objects.exists()


def test_a_spec_cannot_use_an_artifact_of_another_project(cast: Cast) -> None:
    store_path = upload_path(uuid4())
    shutil.copytree(cast.model, artifact_store().workspace(store_path))
    artifact = Artifact.objects.create(
        project=cast.owner.project, name="model", uri=artifact_store().url_of(store_path), is_archive=True, num_bytes=1,
        sha256="0" * 64,
    )  # fmt: skip
    source = f"artifact://{show_id(IdKind.ARTIFACT, artifact.id)}"

    refused = cast.outsider.call("POST", "jobs", cast.spec(model={"source": source}))
    accepted = cast.owner.call("POST", "jobs", cast.spec(model={"source": source}))

    assert refused.status_code == 400
    assert b"there is no artifact" in refused.content
    assert accepted.status_code == 201


def test_artifacts_cannot_be_reached_by_path_even_under_a_model_root(cast: Cast) -> None:
    stolen = settings.ARTIFACT_ROOT / "uploads" / str(uuid4())
    stolen.parent.mkdir(parents=True)
    cast.model.rename(stolen)

    response = cast.outsider.call("POST", "jobs", cast.spec(model={"source": str(stolen)}))

    assert response.status_code == 400
    assert b"artifact" in response.content


def test_a_shared_machine_does_not_name_the_jobs_of_others(cast: Cast) -> None:
    job, worker = cast.job(is_running=True, name="secret plan"), worker_make("alpha", "rollout")
    worker.heartbeat()
    phase_make(job, worker.machine, Role.ROLLOUT)
    now = timezone.now()
    LedgerInterval.objects.create(
        machine=worker.machine, job=job, project=job.project, state="serving", boot_id=worker.boot_id, seq=0,
        started_at=now - timedelta(minutes=2), ended_at=now - timedelta(minutes=1),
    )  # fmt: skip
    machine = f"machines/{show_id(IdKind.MACHINE, worker.machine.id)}"
    secrets = (b"secret plan", show_id(IdKind.JOB, job.id).encode())

    for path in ("machines", machine, f"{machine}/ledger"):
        response = cast.outsider.call("GET", path)
        assert response.status_code == 200
        assert not any(secret in response.content for secret in secrets), path
        own = cast.owner.call("GET", path).content
        assert secrets[1] in own, path


def test_a_phase_cannot_publish_over_the_files_of_another(cast: Cast) -> None:
    mine, other, beta = cast.job(is_running=True), cast.job(is_running=True), worker_make("beta", "train")
    order = order_of(phase_make(mine, beta.machine, Role.TRAIN))
    uri = f"{settings.ARTIFACT_ROOT_URL}/{other.id}/versions/1"

    for stolen in (
        uri,
        f"{settings.ARTIFACT_ROOT_URL}/uploads/x",
        f"{settings.ARTIFACT_ROOT_URL}/{mine.id}/../x",
    ):
        body = msgspec.json.encode(publication_of(mine, 1, uri=stolen))
        refused = worker_post("publications", body, secret=order.credential)
        assert refused.status_code == 400, stolen
        assert b"uri" in refused.content
    body = msgspec.json.encode(publication_of(mine, 1, checkpoint_uri=uri))
    assert worker_post("publications", body, secret=order.credential).status_code == 400


def test_a_phase_that_is_over_cannot_report_metrics(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "train")
    phase = phase_make(job, beta.machine, Role.TRAIN)
    credential = order_of(phase).credential
    body = msgspec.json.encode(MetricReport(step=1, values={"train/loss": 1.0}))
    assert worker_post("metrics", body, secret=credential).status_code == 204
    assert phase_move(phase_id=phase.id, to=PhaseState.FAILED, reason="test", author="test")

    assert worker_post("metrics", body, secret=credential).status_code == 409


def test_a_machine_can_neither_report_for_nor_log_to_the_phase_of_another(cast: Cast) -> None:
    job, alpha, beta = (
        cast.job(is_running=True),
        worker_make("alpha", "rollout"),
        worker_make("beta", "rollout"),
    )
    phase = phase_make(job, alpha.machine, Role.ROLLOUT)
    report = {"phase_id": str(phase.id), "fence": phase.fence, "state": "active"}

    assert logs_post(beta, phase.id) == 404
    body = heartbeat_body(beta) | {"phases": [report]}
    assert beta.post("heartbeat", orjson.dumps(body)).status_code == 200
    phase.refresh_from_db()
    assert phase.state == "leased"


def logs_post(worker: Worker, phase_id: UUID) -> int:
    return worker.post(f"phases/{phase_id}/logs?stream=rollout&offset=0", b"x").status_code


def heartbeat_body(worker: Worker) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(Heartbeat(boot_id=worker.boot_id, monotonic_s=1.0))
    return body
