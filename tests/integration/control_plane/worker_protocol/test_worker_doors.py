"""The door for workers answers as Django's own handler does, with connections that last.

It uses parts of Django that are not documented. If an upgrade changes them, the first tests here fail and name the
part.
"""

import hashlib
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.base import BaseHandler
from django.db import connection, connections
from django.http import HttpResponse
from django.test import Client
from pytest_django import Settings

from seamlessflow.control_plane.common.database.lasting import connection_keep, connection_renew
from seamlessflow.control_plane.worker_protocol import apis, door
from seamlessflow.control_plane.worker_protocol.door import MIDDLEWARE, WorkerDoor, WorkerHandler
from seamlessflow.core.types.tags import Role
from seamlessflow.runtime.http.bodies import BodyRefused
from tests.fixtures.control_plane import Cast, worker_make
from tests.fixtures.web_world import WebWorld

FOR_BROWSERS = {
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
}
# Two requests of one machine differ in these alone.
CHANGING = {"Content-Length"}


def scope_of(path: str, *, method: str = "POST", secret: str = "", host: str = "localhost") -> dict[str, Any]:
    headers = [(b"host", host.encode()), (b"content-type", b"application/json")]
    headers += [(b"authorization", f"Bearer {secret}".encode())] if secret else []
    return {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": "",
        "query_string": b"",
        "headers": headers,
    }


def answered(path: str, body: bytes = b"{}", **fields: str) -> HttpResponse:
    response = WorkerHandler().get_response(ASGIRequest(scope_of(path, **fields), io.BytesIO(body)))
    assert isinstance(response, HttpResponse)
    return response


def test_the_parts_of_django_that_the_door_uses_are_as_they_were() -> None:
    """`BaseHandler.load_middleware` builds a chain around `_get_response` from the settings, and `get_response` calls
    it. The door builds the same chain from a shorter list."""
    ours: Any = WorkerHandler()
    theirs: Any = BaseHandler()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "MIDDLEWARE", list(MIDDLEWARE))
        theirs.load_middleware()

    assert vars(ours).keys() == vars(theirs).keys(), "`load_middleware` sets other attributes"
    for name, value in vars(theirs).items():
        assert name == "_middleware_chain" or value == vars(ours)[name], name
    assert len(layers(ours._middleware_chain)) == len(MIDDLEWARE) + 1
    assert layers(ours._middleware_chain) == layers(theirs._middleware_chain)


def layers(chain: Any) -> list[str]:
    """Return the names of what a chain calls, from the outermost to the view."""
    names = []
    while chain is not None:
        chain = getattr(chain, "__wrapped__", chain)
        names.append(getattr(chain, "__qualname__", type(chain).__qualname__))
        chain = getattr(chain, "get_response", None) or getattr(chain, "_get_response", None)
    return names


def test_every_middleware_of_the_settings_is_kept_or_serves_browsers_only() -> None:
    assert [name for name in settings.MIDDLEWARE if name not in FOR_BROWSERS] == list(MIDDLEWARE)


@pytest.mark.parametrize(
    "path,fields,body,status",
    [
        ("/api/worker/v1/heartbeat", {"secret": "SECRET"}, b'{"boot_id": 1}', 400),
        ("/api/worker/v1/heartbeat", {"secret": "sfm_unknown"}, b"{}", 401),
        ("/api/worker/v1/heartbeat", {}, b"{}", 401),
        ("/api/worker/v1/heartbeat", {"secret": "SECRET", "host": "evil.example"}, b"{}", 400),
        ("/api/worker/v1/heartbeat", {"method": "GET"}, b"", 405),
        ("/api/worker/v1/heartbeat/", {}, b"{}", 404),
        ("/api/worker/v1/publications", {"secret": "SECRET"}, b"{}", 401),
        ("/api/worker/v1/join", {"secret": "SECRET"}, b"{}", 403),
    ],
)
def test_refusals_have_the_status_headers_and_body_of_djangos_own_handler(
    cast: Cast, path: str, fields: dict[str, str], body: bytes, status: int
) -> None:
    given = {
        name: worker_make("beta").secret if value == "SECRET" else value for name, value in fields.items()
    }
    ours = answered(path, body, **given)
    headers = {"Host": given.get("host", "localhost")}
    headers |= {"Authorization": f"Bearer {given['secret']}"} if "secret" in given else {}
    theirs = Client().generic(
        given.get("method", "POST"), path, body, content_type="application/json", headers=headers
    )

    assert (ours.status_code, theirs.status_code) == (status, status)
    assert ours.content == theirs.content
    assert dict(ours.items()) == dict(theirs.items())


def test_a_heartbeat_has_the_headers_of_djangos_own_handler(cast: Cast) -> None:
    cast.job(is_running=True)
    beta = worker_make("beta", Role.ROLLOUT.value)
    body = json.dumps({"boot_id": str(beta.boot_id), "monotonic_s": 1.0, "protocol_version": 2}).encode()
    theirs = beta.post("heartbeat", body)
    ours = answered("/api/worker/v1/heartbeat", body, secret=beta.secret)

    assert (ours.status_code, ours.content) == (theirs.status_code, theirs.content)
    assert dict(ours.items()) == dict(theirs.items())


@pytest.mark.django_db
def test_an_error_that_nobody_anticipated_is_logged_and_answered_without_its_trace(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.JOIN_TOKEN = "for-this-test-only"

    def fail(**_: object) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(apis, "machine_join", fail)
    response = answered(
        "/api/worker/v1/join", b'{"name": "a", "protocol_version": 2}', secret="for-this-test-only"
    )

    assert response.status_code == 500
    assert response["Content-Type"] == "application/problem+json"
    assert b"secret detail" not in response.content
    assert "a secret detail" in caplog.text


async def test_requests_beyond_those_that_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "MAX_INSIDE", 0)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def nothing(*_: Any) -> None:
        raise AssertionError("it was let in")

    with pytest.raises(BodyRefused) as refusal:
        await WorkerDoor(nothing)(scope_of("/api/worker/v1/heartbeat"), receive, nothing)
    assert (refusal.value.status, refusal.value.retry_after_s) == (503, 2)


@pytest.fixture
def lasting_thread() -> Iterator[ThreadPoolExecutor]:
    """One thread with a connection of its own."""
    with ThreadPoolExecutor(1, initializer=connection_keep) as thread:
        yield thread
        thread.submit(connections.close_all).result()


def asked(sql: str) -> Any:
    connection_renew()
    with connection.cursor() as cursor:
        cursor.execute(sql, [1])
        return cursor.fetchone()


@pytest.mark.django_db(transaction=True)
def test_a_lasting_connection_is_kept_and_its_repeated_statements_are_prepared(
    lasting_thread: ThreadPoolExecutor,
) -> None:
    pids = {
        lasting_thread.submit(asked, "SELECT pg_backend_pid() WHERE 1 = %s").result()[0] for _ in range(5)
    }
    counted = (
        "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%%pg_backend_pid%%' AND 1 = %s"
    )

    assert len(pids) == 1
    assert asked("SELECT pg_backend_pid() WHERE 1 = %s")[0] not in pids, "other threads have others"
    assert lasting_thread.submit(asked, counted).result() == (1,)


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_the_server_ended_is_replaced_before_the_next_request(
    lasting_thread: ThreadPoolExecutor,
) -> None:
    (pid,) = lasting_thread.submit(asked, "SELECT pg_backend_pid() WHERE 1 = %s").result()
    # With a time-out, the function returns once the process is gone.
    assert asked(f"SELECT pg_terminate_backend({pid}, 5000) WHERE 1 = %s") == (True,)

    (next_pid,) = lasting_thread.submit(asked, "SELECT pg_backend_pid() WHERE 1 = %s").result()
    assert next_pid != pid


def test_the_web_process_answers_workers_again_as_soon_as_the_database_is_back(web_world: WebWorld) -> None:
    claims = web_world.rows.make_phase(Role.AGENT)
    web_world.rows.insert(
        "policies_policyversion", id=uuid4(), project_id=claims.project_id, job_id=claims.job_id, version=0,
        optimizer_step=0, uri="file:///m", manifest_sha256="", num_bytes=0, checkpoint_uri="", train_fence=0,
        is_pinned=False, published_at="2026-01-01",
    )  # fmt: skip
    web_world.rows.insert(
        "accounts_token", id=uuid4(), kind="machine", name="t", machine_id=claims.machine_id,
        digest=hashlib.sha256(b"sfm_m").hexdigest(), created_at="2026-01-01",
    )  # fmt: skip
    body = json.dumps({"boot_id": str(uuid4()), "monotonic_s": 1.0, "protocol_version": 2}).encode()

    def beat() -> int | None:
        return web_world.status("POST", "/api/worker/v1/heartbeat", body, Authorization="Bearer sfm_m")

    assert [beat() for _ in range(3)] == [200] * 3
    web_world.door.shut()
    try:
        assert beat() == 503
    finally:
        web_world.door.open()
    assert [beat() for _ in range(3)] == [200] * 3
