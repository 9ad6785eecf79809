"""Requests for the policy's next answer over HTTP: `serving/turn_service` answers them, this is the way in and out.

Marks of a repeated request: the header `Idempotency-Key`, and `x-stainless-retry-count` of the SDKs of OpenAI and
Anthropic. Invariant: a request's body is read only after its session's key was checked, and in its job's turn.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from http import HTTPStatus
from typing import Any

from seamlessflow.data_plane.dialects.dialect import Dialect
from seamlessflow.data_plane.routes.http import (
    BodyBudget,
    Receive,
    RequestBody,
    Scope,
    Send,
    credential,
    header,
    send_head,
    send_whole,
)
from seamlessflow.data_plane.serving.repeats import Marks
from seamlessflow.data_plane.serving.turn_gate import TurnEntry
from seamlessflow.data_plane.serving.turn_service import TurnService
from seamlessflow.data_plane.serving.waiting import WAITED
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry
from seamlessflow.runtime.http.departure import departure_of

FIELD_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # what may stand in a header; others are only counted
MAX_IGNORED_NAMED = 20
LEAST_WAIT_S = 0.1  # shorter waits are not worth a header
NO_CACHE = (b"cache-control", b"no-cache")


class TurnRoute:
    """Serves the requests of one dialect; one per dialect and process."""

    def __init__(
        self,
        dialect: Dialect[Any],
        registry: Registry,
        bodies: BodyBudget,
        entry: TurnEntry,
        service: TurnService,
    ) -> None:
        self._dialect = dialect
        self._registry = registry
        self._bodies = bodies
        self._entry = entry
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = await self._registry.session_by_key(credential(scope))
        await self._entry.serve(session, partial(self._serve, session, scope, receive, send))

    async def _serve(self, session: LiveSession, scope: Scope, receive: Receive, send: Send) -> None:
        marks = Marks(
            idempotency_key=header(scope, b"idempotency-key"),
            is_resent=header(scope, b"x-stainless-retry-count").strip("0 ") != "",
        )
        with self._bodies.body() as body:
            await self._service.serve(session, self._dialect, marks, HttpClient(body, scope, receive, send))


class HttpClient:
    """A `Client` of `serving/turn_service`."""

    def __init__(self, body: RequestBody, scope: Scope, receive: Receive, send: Send) -> None:
        self._body, self._scope, self._receive, self._send = body, scope, receive, send

    async def read(self) -> bytes:
        return await self._body.read(self._scope, self._receive)

    def release(self) -> None:
        self._body.release()

    def departure(self, call: Callable[[], None]) -> AbstractContextManager[None]:
        return departure_of(self._scope).awaited(call)

    async def answer(self, body: bytes, *, ignored: Sequence[str], waited_s: float) -> None:
        await send_whole(self._send, body, headers=[*ignored_header(ignored), *waited_header(waited_s)])

    async def open_stream(self, content_type: bytes, *, ignored: Sequence[str]) -> None:
        headers = [NO_CACHE, *ignored_header(ignored)]
        await send_head(self._send, HTTPStatus.OK, content_type, headers=headers)

    async def write(self, chunk: bytes, *, is_last: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": not is_last})


def ignored_header(ignored: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Return the header that names the fields of a body that have no effect, if there are any."""
    names = [name for name in ignored if FIELD_NAME.fullmatch(name)][:MAX_IGNORED_NAMED]
    num_more = len(ignored) - len(names)
    text = ", ".join(names + ([f"{num_more} more"] if num_more else []))
    return [(b"x-seamlessflow-ignored", text.encode())] if text else []


def waited_header(waited_s: float) -> list[tuple[bytes, bytes]]:
    """Return the header of an answer that waited for an engine."""
    return [(WAITED.encode(), f"{waited_s:.1f}".encode())] if waited_s >= LEAST_WAIT_S else []
