"""The door for workers: answers `/api/worker/v1` in a few lasting threads, beside Django's own handling of requests.

Takes an ASGI application and returns it behind the door; other requests go through untouched. Workers send
by far the most requests, and Django's handler makes a thread, an event loop's round and a question to the pool for
each. Invariants: the views, the checks of hosts, the headers, the counters and the answers to faults are those of
Django's handler. At most MAX_INSIDE requests are inside.
"""

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.base import BaseHandler
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpResponse
from django.utils.module_loading import import_string

from seamlessflow.control_plane.common.database.lasting import connection_keep, connection_renew
from seamlessflow.control_plane.common.http.body_gate import Application, Scope, Send
from seamlessflow.runtime.http.bodies import BodyRefused, Receive, body_whole

PREFIX = "/api/worker/v1/"
NUM_THREADS = 8  # each keeps a connection to PostgreSQL, beside those of the pool
MAX_INSIDE = 1024
RETRY_AFTER_S = 2
# Those of `settings.MIDDLEWARE` that mean something here, in the same order. The others serve browsers: static files,
# sessions, cookies, and forms.
MIDDLEWARE = (
    "seamlessflow.control_plane.common.http.middleware.RequestCounterMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "seamlessflow.control_plane.dashboard.content_policy.ContentPolicyMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
)
# What a middleware may do beside calling the next one; none of these does.
HOOKS = ("view", "template_response", "exception")


class WorkerHandler(BaseHandler):
    """Django's synchronous handling of a request, behind MIDDLEWARE. `get_response` answers."""

    _middleware_chain: Any

    def __init__(self) -> None:
        super().__init__()
        # `load_middleware` sets these; it knows no other list than that of the settings.
        nothing: dict[str, list[Any]] = {f"_{hook}_middleware": [] for hook in HOOKS}
        vars(self).update(nothing)
        chain: Any = convert_exception_to_response(self._get_response)  # type: ignore[attr-defined]
        for path in reversed(MIDDLEWARE):
            chain = convert_exception_to_response(import_string(path)(chain))
        self._middleware_chain = chain


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    content: bytes


class WorkerDoor:
    def __init__(self, application: Application) -> None:
        self._application = application
        self._handler = WorkerHandler()
        self._threads = ThreadPoolExecutor(NUM_THREADS, "worker-door", initializer=connection_keep)
        self._num_inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request. Raises BodyRefused and ClientGone, which the gate in front handles."""
        if not scope["path"].startswith(PREFIX):
            await self._application(scope, receive, send)
            return
        answer = await self._answered(scope, await body_whole(receive))
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.content})

    async def _answered(self, scope: Scope, body: bytes) -> _Answer:
        if self._num_inside >= MAX_INSIDE:
            raise BodyRefused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{self._num_inside} requests of workers wait already; try again in a moment",
                retry_after_s=RETRY_AFTER_S,
            )
        self._num_inside += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._answer, scope, body)
        finally:
            self._num_inside -= 1

    def _answer(self, scope: Scope, body: bytes) -> _Answer:
        """Run in one of the threads."""
        connection_renew()
        response = self._handler.get_response(ASGIRequest(scope, io.BytesIO(body)))
        try:
            assert isinstance(response, HttpResponse), "no view of workers streams its answer"
            return _Answer(response.status_code, _headers(response), response.content)
        finally:
            response.close()  # also ends the request for Django, which drops a connection that failed


def _headers(response: HttpResponse) -> list[tuple[bytes, bytes]]:
    """Return the headers as ASGI carries them. There are no cookies: nothing here has a session."""
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in response.items()]
