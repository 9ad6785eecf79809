"""The front before a scripted engine: who gets through, what passes, what a dying engine looks like from outside."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import aiohttp
import pytest
from aiohttp import web

from seamlessflow_workers.rollout.front import Front
from tests.fakes.fake_control_plane import until

JOB = UUID(int=5)
GENERATE = "/inference/v1/generate"


class ScriptedEngine:
    """Answers with what it got; `{"do": …}` in the body asks for more."""

    def __init__(self) -> None:
        self.num_requests = 0
        self.num_cancelled = 0
        self.go_on = asyncio.Event()

    async def start(self, path: Path) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.UnixSite(self.runner, str(path)).start()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.num_requests += 1
        body = await request.read()
        deed = json.loads(body).get("do") if body.startswith(b'{"do"') else None
        if deed == "wait":
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.num_cancelled += 1
                raise
        if deed in ("stream", "stream and die"):
            return await self._stream(request, dies=deed == "stream and die")
        if deed == "die":
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=418 if deed == "refuse" else 200, body=body)

    async def _stream(self, request: web.Request, *, dies: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await self.go_on.wait()
        if dies:
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(b"data: [DONE]\n\n")
        return response


class Scene:
    def __init__(self, engine: ScriptedEngine, front: Front, session: aiohttp.ClientSession) -> None:
        self.engine, self.front, self._session = engine, front, session

    async def ask(
        self, body: bytes = b"{}", *, path: str = GENERATE, method: str = "POST", **headers: str
    ) -> tuple[int, bytes]:
        async with self.request(body, path=path, method=method, **headers) as response:
            return response.status, await response.read()

    def request(
        self, body: bytes = b"{}", *, path: str = GENERATE, method: str = "POST", **headers: str
    ) -> "aiohttp.client._RequestContextManager":
        given = {
            "Authorization": "Bearer right",
            "X-SeamlessFlow-Job": str(JOB),
            "X-SeamlessFlow-Policy-Version": "3",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return self._session.request(method, self.front.endpoint + path, data=body, headers=given)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    engine = ScriptedEngine()
    await engine.start(tmp_path / "engine.sock")
    front = Front(engine_socket=tmp_path / "engine.sock", job_id=JOB, on_change=lambda: None)
    await front.start()
    async with aiohttp.ClientSession() as session:
        yield Scene(engine, front, session)
    await front.stop()
    await engine.runner.cleanup()


@pytest.fixture
def opened(scene: Scene) -> Scene:
    scene.front.open(token="right", version=3)
    return scene


async def test_before_a_phase_is_active_nothing_gets_through(scene: Scene) -> None:
    assert await scene.ask() == (503, b'{"code":"draining"}')
    assert scene.engine.num_requests == 0


async def test_bodies_pass_unchanged_and_the_version_is_named(opened: Scene) -> None:
    body = bytes(range(256)) * 2_000  # half a MB, no JSON: the front does not look inside
    async with opened.request(body) as response:
        assert response.status == 200
        assert response.headers["X-SeamlessFlow-Policy-Version"] == "3"
        assert await response.read() == body
    assert (await opened.ask(b'{"do": "refuse"}'))[0] == 418


@pytest.mark.parametrize("token", ["", "Bearer wrong", "Bearer rightly", "Basic right", "Bearer r\xefght"])
async def test_a_wrong_token_is_refused(opened: Scene, token: str) -> None:
    assert await opened.ask(Authorization=token) == (401, b'{"code":"unauthorized"}')
    assert opened.engine.num_requests == 0


@pytest.mark.parametrize(
    "method,path",
    [
        ("POST", "/pause"),
        ("POST", "/update_weights"),
        ("POST", "/abort_requests"),
        ("GET", GENERATE),
        ("GET", "/"),
    ],
)
async def test_control_verbs_are_not_reachable(opened: Scene, method: str, path: str) -> None:
    assert await opened.ask(method=method, path=path) == (404, b'{"code":"not_found"}')
    assert opened.engine.num_requests == 0


async def test_encoded_or_doubled_paths_do_not_get_around_the_list(opened: Scene) -> None:
    for path in ("/%70ause", "//pause", "/health/../pause", "/inference/v1/generate/../../../pause"):
        status, _ = await opened.ask(path=path)
        assert status == 404
    assert opened.engine.num_requests == 0


@pytest.mark.parametrize("path", ["/health", "/metrics"])
async def test_health_and_metrics_need_the_token_only(opened: Scene, path: str) -> None:
    assert (await opened.ask(b"", method="GET", path=path, X_SeamlessFlow_Policy_Version="9"))[0] == 200


async def test_another_version_or_job_is_refused(opened: Scene) -> None:
    assert await opened.ask(X_SeamlessFlow_Policy_Version="2") == (
        409,
        b'{"code":"version_mismatch","served_version":3}',
    )
    assert await opened.ask(X_SeamlessFlow_Job=str(UUID(int=6))) == (
        409,
        b'{"code":"job_mismatch","served_version":3}',
    )
    assert opened.engine.num_requests == 0


async def test_requests_that_come_during_an_update_wait_and_meet_the_new_version(opened: Scene) -> None:
    opened.front.hold()
    old = asyncio.create_task(opened.ask())
    new = asyncio.create_task(opened.ask(X_SeamlessFlow_Policy_Version="4"))
    await asyncio.sleep(0.05)
    assert not old.done()
    assert opened.front.num_in_flight == 0
    opened.front.release(version=4)
    assert (await old)[0] == 409
    assert (await new)[0] == 200


async def test_closing_refuses_those_who_wait_and_lets_the_others_flow_out(opened: Scene) -> None:
    running = asyncio.create_task(opened.ask(b'{"do": "wait"}'))
    await until(lambda: opened.front.num_in_flight == 1, what="one is in flight")
    opened.front.hold()
    waiting = asyncio.create_task(opened.ask())
    await asyncio.sleep(0.05)
    opened.front.close()
    assert await waiting == (503, b'{"code":"draining"}')
    assert await opened.ask() == (503, b'{"code":"draining"}')
    vacant = asyncio.create_task(opened.front.wait_vacant())
    opened.engine.go_on.set()
    assert (await running)[0] == 200
    async with asyncio.timeout(5):
        await vacant


async def test_events_arrive_one_by_one(opened: Scene) -> None:
    async with opened.request(b'{"do": "stream"}') as response:
        assert response.content_type == "text/event-stream"
        assert await response.content.readany() == b"data: 1\n\n"
        opened.engine.go_on.set()
        assert await response.read() == b"data: [DONE]\n\n"


async def test_a_stream_whose_engine_dies_has_no_proper_end(opened: Scene) -> None:
    async with opened.request(b'{"do": "stream and die"}') as response:
        assert await response.content.readany() == b"data: 1\n\n"
        opened.engine.go_on.set()
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    await until(lambda: opened.front.num_in_flight == 0, what="it is counted out")


async def test_a_unary_request_whose_engine_dies_says_so(opened: Scene) -> None:
    assert await opened.ask(b'{"do": "die"}') == (502, b'{"code":"engine_lost"}')
    assert opened.front.num_in_flight == 0


async def test_a_gateway_that_leaves_takes_its_request_from_the_engine(opened: Scene) -> None:
    request = asyncio.create_task(opened.ask(b'{"do": "wait"}'))
    await until(lambda: opened.front.num_in_flight == 1, what="it is in flight")
    request.cancel()
    await until(lambda: opened.engine.num_cancelled == 1, what="the engine lost its client")
    assert opened.front.num_in_flight == 0


async def test_the_front_costs_little(opened: Scene) -> None:
    for _ in range(20):
        await opened.ask()
    began_s = time.process_time()
    for _ in range(200):
        await opened.ask()
    print(
        f"front, test client and test engine together: {(time.process_time() - began_s) / 200 * 1e3:.2f} ms a request"
    )
    assert (time.process_time() - began_s) / 200 < 0.02


async def test_front_that_listens_everywhere_tells_the_address_it_was_given(tmp_path: Path) -> None:
    given = {"engine_socket": tmp_path / "engine.sock", "job_id": JOB, "on_change": lambda: None}
    engine = ScriptedEngine()
    await engine.start(tmp_path / "engine.sock")
    front = Front(**given, listen_host="0.0.0.0", advertised_host="127.0.0.2")  # type: ignore[arg-type]
    await front.start()
    front.open(token="right", version=3)
    try:
        async with aiohttp.ClientSession() as session:
            assert front.endpoint.startswith("http://127.0.0.2:")
            assert (await Scene(engine, front, session).ask())[0] == 200
        in_brackets = Front(**given, advertised_host="fd00::7")  # type: ignore[arg-type]
        await in_brackets.start()
        assert in_brackets.endpoint.startswith("http://[fd00::7]:")
        await in_brackets.stop()
    finally:
        await front.stop()
        await engine.runner.cleanup()
