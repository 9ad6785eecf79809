"""The front of one engine: it authenticates gateways, checks what they expect, and passes bytes through unparsed.

It takes HTTP on a free port (of loopback, unless the machine listens to others) with `Authorization: Bearer <front
token>`; generate requests name the job and the policy version that they expect. It returns the engine's own answers
(unary or server-sent events) with the version in `X-SeamlessFlow-Policy-Version`, and refusals as JSON with a `code`.
Invariants: only the engine's routes in ROUTES are reachable; no request reaches weights of another job or
version than it names; an answer that the engine breaks off breaks off here too, so nobody takes it for a whole one.

States, moved by the rollout child alone: closed (503) → open → held (requests wait for new weights) → open → closed.
"""

import asyncio
import contextlib
import functools
import hmac
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from uuid import UUID

from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.runtime.http_connections import HttpConnections, address_of_socket
from seamlessflow_workers.rollout.front_connection import FrontConnection, Request
from seamlessflow_workers.rollout.front_relay import Relay, refusal_bytes
from seamlessflow_workers.rollout.front_server import FrontServer

GENERATE = (b"POST", b"/inference/v1/generate")
ROUTES = frozenset(
    {GENERATE, (b"POST", b"/inference/v1/abort_requests"), (b"GET", b"/health"), (b"GET", b"/metrics")}
)
LOOPBACK = "127.0.0.1"
MAX_BODY_BYTES = 256 << 20
NUM_HELD_MAX = 4096
# Below the engine's own keep-alive, so that a connection is never reused just as it is closed.
UPSTREAM_KEEPALIVE_S = 2.0
STOP_S = 1.0  # for requests in flight to end
_CODES = {
    HTTPStatus.BAD_REQUEST: "bad_request",
    HTTPStatus.REQUEST_TIMEOUT: "timeout",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "body_too_large",
    HTTPStatus.EXPECTATION_FAILED: "unknown_expectation",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "head_too_large",
    HTTPStatus.NOT_IMPLEMENTED: "unknown_transfer_encoding",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded",
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED: "unknown_http_version",
}


class Front:
    """One per warm engine; `open` admits the gateways of one phase."""

    max_body_bytes = MAX_BODY_BYTES

    def __init__(
        self,
        *,
        engine_socket: Path,
        job_id: UUID,
        on_change: Callable[[], None],
        listen_host: str = LOOPBACK,
        advertised_host: str = LOOPBACK,
    ) -> None:
        self.num_in_flight = 0
        self.endpoint = ""
        self._engine = address_of_socket(str(engine_socket))
        self._listen_host = listen_host
        self._advertised_host = f"[{advertised_host}]" if ":" in advertised_host else advertised_host
        self._job_names = (str(job_id).encode(), show_id(IdKind.JOB, job_id).encode())
        self._on_change = on_change
        self._token: bytes | None = None
        self._version = 0
        self._shown_version = b"0"
        self._is_open = self._is_holding = False
        self._held: dict[FrontConnection, Request] = {}
        self._vacant = asyncio.Event()
        self._vacant.set()

    async def start(self) -> None:
        self._connections = HttpConnections(peer="the engine", idle_s=UPSTREAM_KEEPALIVE_S)
        self._server = FrontServer(self)
        port = await self._server.start(self._listen_host)
        self.endpoint = f"http://{self._advertised_host}:{port}"

    def open(self, *, token: str, version: int) -> None:
        """Admit requests that bear `token` and expect `version`."""
        self._token = f"Bearer {token}".encode()
        self._is_open = True
        self.release(version=version)

    def hold(self) -> None:
        """Make new requests wait; the engine handles those in flight."""
        self._is_holding = True

    def release(self, *, version: int) -> None:
        """Note that the engine serves `version` and check the waiting requests against it."""
        self._version, self._shown_version = version, str(version).encode()
        self._admit_held()

    def close(self) -> None:
        """Refuse new and waiting requests; those in flight run to their end."""
        self._is_open = False
        self._admit_held()

    async def wait_vacant(self) -> None:
        await self._vacant.wait()

    async def stop(self) -> None:
        self.close()
        with contextlib.suppress(TimeoutError):  # those that do not end are broken off
            async with asyncio.timeout(STOP_S):
                await self.wait_vacant()
        await self._server.stop()
        self._connections.close()

    def refusal_of(self, request: Request) -> bytes | None:
        """Return the answer to a request for what is not here, or without the token."""
        if _route(request) not in ROUTES:
            return _refusal(HTTPStatus.NOT_FOUND, "not_found", request)
        if self._token is None:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "draining", request)
        if not hmac.compare_digest(request.header(b"authorization"), self._token):
            return _refusal(HTTPStatus.UNAUTHORIZED, "unauthorized", request)
        return None

    def malformed(self, status: HTTPStatus) -> bytes:
        return refusal_bytes(status, _CODES[status], closes=True)

    def handle(self, connection: FrontConnection, request: Request) -> None:
        if _route(request) != GENERATE:
            self._relay(connection, request, on_over=_nothing)
        elif not self._is_holding:
            self._admit(connection, request)
        elif len(self._held) >= NUM_HELD_MAX:
            connection.answer(_refusal(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", request))
        else:
            self._held[connection] = request
            connection.on_left = functools.partial(self._forget, connection)

    def _forget(self, connection: FrontConnection) -> None:
        del self._held[connection]

    def _admit_held(self) -> None:
        self._is_holding = False
        held, self._held = self._held, {}
        for connection, request in held.items():
            self._admit(connection, request)

    def _admit(self, connection: FrontConnection, request: Request) -> None:
        """Let a request through to the engine, or refuse it."""
        if refusal := self._refusal_now(request):
            connection.answer(refusal)
        else:
            self._count(1)
            self._relay(connection, request, on_over=functools.partial(self._count, -1))

    def _refusal_now(self, request: Request) -> bytes | None:
        if not self._is_open:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "draining", request)
        if request.header(b"x-seamlessflow-job") not in self._job_names:
            return _refusal(HTTPStatus.CONFLICT, "job_mismatch", request, served_version=self._version)
        if request.header(b"x-seamlessflow-policy-version") != self._shown_version:
            return _refusal(HTTPStatus.CONFLICT, "version_mismatch", request, served_version=self._version)
        return None

    def _relay(self, connection: FrontConnection, request: Request, *, on_over: Callable[[], None]) -> None:
        relay = Relay(
            self._connections, self._engine, connection, version=self._shown_version, on_over=on_over
        )
        relay.begin(request)

    def _count(self, change: int) -> None:
        self.num_in_flight += change
        if self.num_in_flight:
            self._vacant.clear()
        else:
            self._vacant.set()
        self._on_change()


def _route(request: Request) -> tuple[bytes, bytes]:
    return request.method, request.target.partition(b"?")[0]


def _refusal(status: HTTPStatus, code: str, request: Request, *, served_version: int | None = None) -> bytes:
    whole = refusal_bytes(status, code, served_version=served_version, closes=request.is_last)
    return whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if request.method == b"HEAD" else whole


def _nothing() -> None: ...
