"""The body gate of the web process on its own: accounts, and the bodies that it admits."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from seamlessflow.control_plane.common.http import body_gate
from seamlessflow.control_plane.common.http.body_bounds import body_bound
from seamlessflow.control_plane.common.http.body_gate import BodyGate
from seamlessflow.runtime.http.limits import MAX_JSON_BYTES


async def is_known(scope: Any) -> bool:
    return True


async def reader(
    scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Read the body and answer 200."""
    while (message := await receive()).get("more_body"):
        assert message["type"] == "http.request"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def gate(application: Any = reader) -> BodyGate:
    return BodyGate(application, is_known=is_known)


async def ask(gate: BodyGate, path: str, chunks: Iterable[bytes], *, method: str = "POST") -> int:
    """Return the status with which the chunks are answered."""
    sent: list[Any] = []
    pending = iter(chunks)

    async def receive() -> dict[str, Any]:
        chunk = next(pending, b"")
        return {"type": "http.request", "body": chunk, "more_body": bool(chunk)}

    async def send(message: Any) -> None:
        sent.append(message)

    await gate({"type": "http", "method": method, "path": path, "headers": []}, receive, send)
    return int(sent[0]["status"])


async def test_chunks_are_counted_as_they_arrive() -> None:
    half = b"x" * (MAX_JSON_BYTES // 2)
    assert await ask(gate(), "/api/v1/jobs", [half, half]) == 200
    assert await ask(gate(), "/api/v1/jobs", [half, half, b"x"]) == 413


async def test_the_bodies_of_all_requests_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_gate, "MAX_WEB_BODIES_BYTES", 100)
    may_end, inside = asyncio.Event(), asyncio.Event()

    async def holder(scope: Any, receive: Any, send: Any) -> None:
        inside.set()
        await receive()
        await may_end.wait()
        await reader(scope, receive, send)

    door = gate(holder)
    first = asyncio.create_task(ask(door, "/api/v1/jobs", [b"x" * 80]))
    await inside.wait()
    await asyncio.sleep(0)
    assert await ask(door, "/api/v1/jobs", [b"x" * 80]) == 503
    may_end.set()
    assert await first == 200
    assert await ask(door, "/api/v1/jobs", [b"x" * 80]) == 200, "what is over takes no room"


@pytest.mark.parametrize(
    "method,path,takes",
    [
        ("GET", "/api/v1/jobs", False),
        ("POST", "/api/v1/jobs", True),
        ("PATCH", "/api/v1/machines/mac_0", True),
        ("POST", "/api/worker/v1/heartbeat", True),
        ("GET", "/api/worker/v1/heartbeat", False),
        ("POST", "/admin/login/", True),
        ("POST", "/", False),
        ("POST", "/metrics", False),
    ],
)
def test_routes_that_take_no_body_are_known(method: str, path: str, takes: bool) -> None:
    assert (body_bound(method=method, path=path, max_upload_bytes=10**9).max_bytes > 0) is takes
