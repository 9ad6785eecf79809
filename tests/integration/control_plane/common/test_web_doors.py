"""The web process limits requests before it stores anything, and an interrupted request leaves
nothing behind."""

import contextlib
import io
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fixtures.web_world import PIECE, WebWorld, status_read

MEBIBYTE = 1024**2


def chunked(num_bytes: int) -> io.BytesIO:
    """Send a body without announcing its length; http.client sends it in chunks."""
    return io.BytesIO(b" " * num_bytes)


def until(condition: Callable[[], bool], *, what: str) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


@pytest.mark.parametrize(
    "method,path,num_bytes",
    [
        ("POST", "/healthz", 1),
        ("GET", "/healthz", 8 * MEBIBYTE),
        ("POST", "/", 8 * MEBIBYTE),
        ("GET", "/api/v1/jobs", 8 * MEBIBYTE),
        ("POST", "/api/v1/jobs", 8 * MEBIBYTE),
        ("POST", "/api/worker/v1/heartbeat", 8 * MEBIBYTE),
        ("PUT", "/metrics", 8 * MEBIBYTE),
        ("POST", "/nothing/is/here", 8 * MEBIBYTE),
    ],
)
def test_a_body_larger_than_its_route_accepts_is_refused(
    web_world: WebWorld, method: str, path: str, num_bytes: int
) -> None:
    whole = web_world.ask(method, path, b" " * num_bytes)
    assert (whole.status, whole.getheader("Content-Type")) == (413, "application/problem+json")
    in_chunks = web_world.ask(
        method,
        path,
        chunked(num_bytes),
        **{"Transfer-Encoding": "chunked"},
    )
    assert in_chunks.status == 413


def test_a_body_announced_as_too_large_is_refused_before_it_arrives(web_world: WebWorld) -> None:
    with contextlib.closing(
        web_world.head_sent("POST", "/healthz", "Content-Length: 2147483648")
    ) as connection:
        assert status_read(connection, timeout_s=10) == 413


def test_a_json_body_of_very_many_values_uses_little_memory(web_world: WebWorld) -> None:
    body = b'{"a": [' + b"{}," * 650_000 + b"0]}"
    web_world.peak_bytes()
    before = web_world.peak_bytes()
    headers = web_world.bearer | {"Content-Type": "application/json"}
    told = web_world.ask("POST", "/api/v1/jobs", body, **headers)
    grown = web_world.peak_bytes() - before
    assert told.status == 400
    assert grown < 40 * MEBIBYTE, f"a body of {len(body) >> 20} MiB took {grown // MEBIBYTE} MiB"


def test_uploads_of_unknown_callers_are_refused_before_they_arrive(web_world: WebWorld) -> None:
    length = f"Content-Length: {64 * MEBIBYTE}"
    kind = "Content-Type: multipart/form-data; boundary=a-line-that-no-file-holds"
    for extra in ([], ["Authorization: Bearer sft_wrong"], ["Cookie: seamlessflow_session=wrong"]):
        with contextlib.closing(
            web_world.head_sent("POST", "/api/v1/uploads", length, kind, *extra)
        ) as nobody:
            assert status_read(nobody, timeout_s=10) == 401, extra


def test_an_upload_is_kept_in_the_configured_folder_and_removed_if_its_client_disconnects(
    web_world: WebWorld,
) -> None:
    connection = web_world.head_sent(
        "POST",
        "/api/v1/uploads",
        f"Content-Length: {64 * MEBIBYTE}",
        "Content-Type: multipart/form-data; boundary=a-line-that-no-file-holds",
        f"Authorization: {web_world.bearer['Authorization']}",
    )
    with contextlib.closing(connection):
        for _ in range(16 * MEBIBYTE // len(PIECE)):
            connection.sendall(PIECE)
        until(lambda: bool(web_world.spools()), what="the body is spooled")
        assert all(link.startswith(str(web_world.incoming)) for link in web_world.spools())
    until(lambda: not web_world.spools(), what="the spool goes with its client")
    assert list(web_world.incoming.iterdir()) == []


def test_an_upload_is_stored_completely_and_once(web_world: WebWorld) -> None:
    content = os.urandom(6 * MEBIBYTE)
    part = b'--a-line-that-no-file-holds\r\nContent-Disposition: form-data; name="file"; filename="t"\r\n\r\n'
    taken = web_world.ask(
        "POST",
        "/api/v1/uploads",
        part + content + b"\r\n--a-line-that-no-file-holds--\r\n",
        **web_world.bearer | {"Content-Type": "multipart/form-data; boundary=a-line-that-no-file-holds"},
    )
    assert taken.status == 201, taken.content  # type: ignore[attr-defined]
    (file,) = (path for path in (web_world.artifacts / "uploads").rglob("*") if path.is_file())
    assert file.read_bytes() == content
    assert list(web_world.incoming.iterdir()) == []


def test_leftovers_of_a_killed_process_are_removed_at_the_next_start(web_world: WebWorld) -> None:
    web_world.kill()
    (web_world.incoming / "half-unpacked" / "model").mkdir(parents=True)
    for path in (
        web_world.incoming / "upload-abc",
        web_world.incoming / "half-unpacked" / "model" / "config.json",
    ):
        path.write_bytes(b"half")
    an_hour_ago = time.time() - 3600
    for path in web_world.incoming.iterdir():
        os.utime(path, (an_hour_ago, an_hour_ago))
    web_world.start()
    assert list(web_world.incoming.iterdir()) == []


WORKER_BODY = b'{"protocol_version": 2}'


def test_requests_get_503_while_the_database_is_unavailable_and_nothing_is_half_made(
    web_world: WebWorld,
) -> None:
    num_jobs = web_world.rows.sql("SELECT count(*) FROM jobs_job")
    spec = json.dumps(web_world.rows.sql("SELECT spec_submitted FROM jobs_job")[0][0]).encode()
    kind = {"Content-Type": "application/json"}
    questions: list[tuple[str, str, bytes | None, dict[str, str]]] = [
        ("GET", "/api/v1/jobs", None, web_world.bearer),
        ("POST", "/api/v1/jobs", spec, web_world.bearer | kind),
        ("POST", "/api/v1/uploads", b"x", web_world.bearer),
        ("POST", "/api/worker/v1/heartbeat", WORKER_BODY, {"Authorization": "Bearer sfm_any"} | kind),
        ("GET", "/", None, {"Cookie": "seamlessflow_session=0123456789abcdef0123456789abcdef"}),
        ("GET", "/healthz", None, {}),
    ]
    assert web_world.status("GET", "/api/v1/jobs", None, **web_world.bearer) == 200
    web_world.door.shut()
    try:
        with ThreadPoolExecutor() as side_by_side:  # each waits for a connection before it is refused
            answers = list(side_by_side.map(lambda asked: web_world.ask(*asked[:3], **asked[3]), questions))
        for (_, path, _, _), told in zip(questions, answers, strict=True):
            assert told.status == 503, path
            assert int(told.getheader("Retry-After") or 0) > 0, path
            if path.startswith("/api/"):
                assert told.getheader("Content-Type") == "application/problem+json"
    finally:
        web_world.door.open()
    until(lambda: web_world.status("GET", "/healthz") == 200, what="it recovers by itself")
    until(
        lambda: web_world.status("GET", "/api/v1/jobs", None, **web_world.bearer) == 200,
        what="so does the rest",
    )
    assert web_world.rows.sql("SELECT count(*) FROM jobs_job") == num_jobs
    assert list(web_world.incoming.iterdir()) == []


def test_requests_get_503_while_the_database_hangs(web_world: WebWorld) -> None:
    questions: list[tuple[str, dict[str, str]]] = [
        ("/api/v1/jobs", web_world.bearer),
        ("/api/v1/machines", web_world.bearer),
        ("/healthz", {}),
    ]
    web_world.door.freeze()
    try:
        with ThreadPoolExecutor() as side_by_side:
            statuses = side_by_side.map(
                lambda asked: web_world.status("GET", asked[0], **asked[1]), questions
            )
            assert list(statuses) == [503] * len(questions), "requests wait for a database that says nothing"
        assert web_world.status("GET", "/livez") == 200
        again = web_world.ask("GET", "/api/v1/jobs", None, **web_world.bearer)
        assert (again.status, again.getheader("Content-Type")) == (503, "application/problem+json")
        assert int(again.getheader("Retry-After") or 0) > 0
    finally:
        web_world.door.thaw()
    until(
        lambda: web_world.status("GET", "/api/v1/jobs", None, **web_world.bearer) == 200,
        what="it goes on when the database does",
    )
