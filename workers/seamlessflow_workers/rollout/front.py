"""The front of one engine: it authenticates gateways, checks what they expect, and passes bytes through unparsed.

It takes HTTP on a free port (of loopback, unless the machine listens to others) with `Authorization: Bearer <front
token>`; generate requests name the job and the policy version that they expect. It returns the engine's own answers
(unary or server-sent events) with the version in `X-SeamlessFlow-Policy-Version`, and refusals as JSON with a `code`.
Invariants: only the engine's routes in ROUTES are reachable; no request reaches weights of another job or
version than it names; an answer that the engine breaks off breaks off here too, so nobody takes it for a whole one.

States, moved by the rollout child alone: closed (503) → open → held (requests wait for new weights) → open → closed.
"""

import asyncio
import hmac
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from uuid import UUID

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from seamlessflow.core.types.ids import IdKind, show_id

JOB_HEADER = "X-SeamlessFlow-Job"
VERSION_HEADER = "X-SeamlessFlow-Policy-Version"
GENERATE = ("POST", "/inference/v1/generate")
ROUTES = frozenset(
    {GENERATE, ("POST", "/inference/v1/abort_requests"), ("GET", "/health"), ("GET", "/metrics")}
)
LOOPBACK = "127.0.0.1"
MAX_BODY_BYTES = 256 << 20
NUM_HELD_MAX = 4096
# Below the engine's own keep-alive, so that a connection is never reused just as it is closed.
UPSTREAM_KEEPALIVE_S = 2.0
STOP_S = 1.0


class Front:
    """One per warm engine; `open` admits the gateways of one phase."""

    def __init__(
        self,
        *,
        engine_socket: Path,
        job_id: UUID,
        on_change: Callable[[], None],
        listen_host: str = LOOPBACK,
        advertised_host: str = LOOPBACK,
    ) -> None:
        self._engine_socket = engine_socket
        self._listen_host = listen_host
        self._advertised_host = f"[{advertised_host}]" if ":" in advertised_host else advertised_host
        self._job_names = (str(job_id), show_id(IdKind.JOB, job_id))
        self._on_change = on_change
        self._token: bytes | None = None
        self._version = 0
        self._is_open = False
        self._released = asyncio.Event()
        self._released.set()
        self._vacant = asyncio.Event()
        self._vacant.set()
        self._num_held = 0
        self.num_in_flight = 0
        self.endpoint = ""

    async def start(self) -> None:
        connector = aiohttp.UnixConnector(
            str(self._engine_socket), limit=0, keepalive_timeout=UPSTREAM_KEEPALIVE_S
        )
        self._upstream = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        )
        server = web.Server(
            self._handle, request_factory=_make_request, handler_cancellation=True, access_log=None
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=STOP_S)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._listen_host, 0).start()
        self.endpoint = f"http://{self._advertised_host}:{self._runner.addresses[0][1]}"

    def open(self, *, token: str, version: int) -> None:
        """Admit requests that bear `token` and expect `version`."""
        self._token = f"Bearer {token}".encode()
        self._is_open = True
        self.release(version=version)

    def hold(self) -> None:
        """Make new requests wait; the engine handles those in flight."""
        self._released.clear()

    def release(self, *, version: int) -> None:
        """Note that the engine serves `version` and check the waiting requests against it."""
        self._version = version
        self._released.set()

    def close(self) -> None:
        """Refuse new and waiting requests; those in flight run to their end."""
        self._is_open = False
        self._released.set()

    async def wait_vacant(self) -> None:
        await self._vacant.wait()

    async def stop(self) -> None:
        self.close()
        await self._runner.cleanup()
        await self._upstream.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        route = (request.method, request.path)
        if route not in ROUTES:
            return _refusal(HTTPStatus.NOT_FOUND, "not_found")
        if self._token is None:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "draining")
        if not hmac.compare_digest(request.headers.get("Authorization", "").encode(), self._token):
            return _refusal(HTTPStatus.UNAUTHORIZED, "unauthorized")
        body = await request.read()
        if route != GENERATE:
            return await self._relay(request, body)
        if refusal := await self._admission(request):
            return refusal
        self._count(1)
        try:
            return await self._relay(request, body)
        finally:
            self._count(-1)

    async def _admission(self, request: web.BaseRequest) -> web.Response | None:
        """Wait for an update to end; then return None, or the refusal if the request may not proceed."""
        if not self._released.is_set():
            if self._num_held >= NUM_HELD_MAX:
                return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded")
            self._num_held += 1
            try:
                await self._released.wait()
            finally:
                self._num_held -= 1
        if not self._is_open:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "draining")
        if request.headers.get(JOB_HEADER) not in self._job_names:
            return _refusal(HTTPStatus.CONFLICT, "job_mismatch", served_version=self._version)
        if request.headers.get(VERSION_HEADER) != str(self._version):
            return _refusal(HTTPStatus.CONFLICT, "version_mismatch", served_version=self._version)
        return None

    async def _relay(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        headers = {VERSION_HEADER: str(self._version)}
        try:
            async with self._upstream.request(
                request.method,
                f"http://engine{request.path}",
                data=body or None,
                headers={"Content-Type": request.headers.get("Content-Type", "application/json")},
            ) as answer:
                headers["Content-Type"] = answer.headers.get("Content-Type", "application/octet-stream")
                if answer.content_type == "text/event-stream":
                    return await _stream(request, answer, headers)
                return web.Response(status=answer.status, body=await answer.read(), headers=headers)
        except aiohttp.ClientError:
            return _refusal(HTTPStatus.BAD_GATEWAY, "engine_lost")

    def _count(self, change: int) -> None:
        self.num_in_flight += change
        if self.num_in_flight:
            self._vacant.clear()
        else:
            self._vacant.set()
        self._on_change()


async def _stream(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, headers: dict[str, str]
) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
    except aiohttp.ClientPayloadError:
        # The headers are already sent: a connection that ends without its last chunk tells the gateway what happened.
        if request.transport is not None:
            request.transport.close()
    return response


def _refusal(status: HTTPStatus, code: str, *, served_version: int | None = None) -> web.Response:
    content: dict[str, str | int] = {"code": code}
    if served_version is not None:
        content["served_version"] = served_version
    return web.Response(status=status, body=msgspec.json.encode(content), content_type="application/json")


def _make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)
