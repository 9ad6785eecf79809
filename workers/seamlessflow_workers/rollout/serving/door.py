"""The door of an engine: the one way in for gateways, on a port of its own.

It takes requests with `Authorization: Bearer <front token>`; those for an answer name the job and the policy version
that they expect. It returns the engine's own answers with the version in `X-SeamlessFlow-Policy-Version`, and refusals
as JSON with a `code`. Invariants: only the routes in ROUTES are reached through it; no request reaches weights of
another job or version than it names; a body is read only once the token has been checked, and a request counts as in
flight from the moment its body is whole until its answer is sent or its client has left.

Closed (503) → open → closed; while an update of the weights is open, requests wait.
"""

import asyncio
import contextlib
import hmac
from collections.abc import Callable, Iterator
from http import HTTPStatus
from uuid import UUID

import msgspec

from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.runtime.http.bodies import BodyRefused, ClientGone
from seamlessflow.runtime.http.limits import HttpLimits
from seamlessflow_workers.rollout.serving import exchange
from seamlessflow_workers.rollout.serving.exchange import Answer, Receive, Reply, Scope, Send
from seamlessflow_workers.rollout.serving.served_engine import ServedEngine
from seamlessflow_workers.rollout.serving.server import DRAIN_S, EngineApp

GENERATE, ABORT = ("POST", "/inference/v1/generate"), ("POST", "/inference/v1/abort_requests")
ROUTES = frozenset({GENERATE, ABORT, ("GET", "/health"), ("GET", "/metrics")})
ABORT_AGAIN_S = 0.1  # for requests that were on their way into the engine during the last abort
_JOB, _VERSION = b"x-seamlessflow-job", b"x-seamlessflow-policy-version"
# Headers of which a second one would leave open which counts.
_ONCE = frozenset({b"authorization", b"content-length", b"host", _JOB, _VERSION})
_CODES = {
    HTTPStatus.REQUEST_TIMEOUT: "timeout",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "body_too_large",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "head_too_large",
}


class Door:
    """An ASGI application before the engine's own; `open` admits the gateways of one phase."""

    def __init__(self, app: EngineApp, engine: ServedEngine, *, on_count: Callable[[], None]) -> None:
        self.num_in_flight = 0
        self._app = app
        self._engine = engine
        self._on_count = on_count
        self._token: bytes | None = None
        self._job_names: tuple[bytes, ...] = ()
        self._is_open = False
        self._waiting: set[asyncio.Task[bool]] = set()
        self._vacant = asyncio.Event()
        self._vacant.set()

    def open(self, *, token: str, job_id: UUID) -> None:
        """Admit requests that bear `token` and expect this job."""
        self._token = f"Bearer {token}".encode()
        self._job_names = (str(job_id).encode(), show_id(IdKind.JOB, job_id).encode())
        self._is_open = True

    def close(self) -> None:
        """Refuse new and waiting requests; those in flight run to their end."""
        self._is_open = False
        for waiting in self._waiting:
            waiting.cancel()

    async def drain(self) -> None:
        """Close, and end the requests in flight with the tokens so far."""
        self.close()
        while self.num_in_flight:
            self._engine.abort([one for several in self._engine.in_flight.values() for one in several])
            with contextlib.suppress(TimeoutError):  # then abort once more
                async with asyncio.timeout(ABORT_AGAIN_S):
                    await self._vacant.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await exchange.while_connected(scope, self._enter(scope, receive, send))

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if refusal := self._refusal(scope, headers):
            await Reply(send).whole(refusal)
            return
        is_generate = (scope["method"], scope["path"]) == GENERATE
        try:
            with self._app.bodies.body() as body:
                data = await body.read(scope, receive)
                if is_generate:
                    await self._steady()
        except BodyRefused as error:
            await Reply(send).whole(_refused(error.status, _CODES.get(error.status, "overloaded")))
            return
        except ClientGone:
            return
        if is_generate and (refusal := self._mismatch(headers)):
            await Reply(send).whole(refusal)
            return
        reply = Reply(send, ((_VERSION, self._engine.weight_version.encode()),))
        with self._counted() if is_generate else contextlib.nullcontext():
            await self._app.answer(scope, data, reply)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> Answer | None:
        """Return the answer to a request for an unknown path, or without the token."""
        if (scope["method"], scope["path"]) not in ROUTES:
            return _refused(HTTPStatus.NOT_FOUND, "not_found")
        if self._token is None:
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, "draining")
        if sum(name in _ONCE for name, _ in scope["headers"]) > len(_ONCE & headers.keys()):
            return _refused(HTTPStatus.BAD_REQUEST, "bad_request")
        if not hmac.compare_digest(headers.get(b"authorization", b""), self._token):
            return _refused(HTTPStatus.UNAUTHORIZED, "unauthorized")
        return None

    async def _steady(self) -> None:
        """Wait while an update of the weights is open, unless the door closes."""
        while self._is_open and not self._engine.is_steady.is_set():
            waiting = asyncio.ensure_future(self._engine.is_steady.wait())
            self._waiting.add(waiting)
            try:
                await asyncio.wait([waiting])
            finally:
                self._waiting.discard(waiting)
                waiting.cancel()

    def _mismatch(self, headers: dict[bytes, bytes]) -> Answer | None:
        """Return the answer to a request for another job or version than the engine's."""
        if not self._is_open:
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, "draining")
        served = self._engine.weight_version
        if headers.get(_JOB) in self._job_names and headers.get(_VERSION) == served.encode():
            return None
        code = "version_mismatch" if headers.get(_JOB) in self._job_names else "job_mismatch"
        return _refused(HTTPStatus.CONFLICT, code, served_version=int(served))

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self.num_in_flight += change
        (self._vacant.clear if self.num_in_flight else self._vacant.set)()
        self._on_count()


def door_limits() -> HttpLimits:
    return HttpLimits(refusal=_malformed, drain_s=DRAIN_S)


def _malformed(status: HTTPStatus, _message: str) -> tuple[bytes, bytes]:
    return exchange.JSON.encode(), _refused(status, _CODES.get(status, "overloaded")).body


def _refused(status: HTTPStatus, code: str, **further: int) -> Answer:
    return Answer(msgspec.json.encode({"code": code, **further}), status)
