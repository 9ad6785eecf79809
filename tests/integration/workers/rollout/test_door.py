"""The door of an engine: who gets through, who waits, what is counted, and how bad clients end."""

import asyncio
import dataclasses
import json
import socket
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import aiohttp
import msgspec
import pytest
from yarl import URL

from seamlessflow.core.protocol.child import (
    Begin,
    Begun,
    Drain,
    Ended,
    Ping,
    Pong,
    Ready,
    Serving,
    decode_from_child,
    encode_line,
)
from seamlessflow.core.protocol.worker import PhaseOrder, WeightsReference
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from seamlessflow.runtime.http import protocol
from seamlessflow_workers.rollout.serving.supervised import Supervised
from tests.fakes.fake_control_plane import until
from tests.fakes.fake_engine import FakeEngine, start_fake_engine

JOB, PHASE = UUID(int=5), UUID(int=6)
GENERATE = "/inference/v1/generate"
ENDLESS = {"token_ids": [20, 21], "sampling_params": {"ignore_eos": True}}
SHORT = {"token_ids": [20, 21], "sampling_params": {"max_tokens": 3, "ignore_eos": True}}
HEAD = (
    b"POST /inference/v1/generate HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer right\r\n"
    b"X-SeamlessFlow-Job: %b\r\nX-SeamlessFlow-Policy-Version: 3\r\n" % str(JOB).encode()
)
LONG_S = 30.0
BEGIN = Begin(
    order=PhaseOrder(
        phase_id=PHASE,
        fence=1,
        role=Role.ROLLOUT,
        job_id=JOB,
        project_id=JOB,
        is_draining=False,
        credential="",
        front_token="right",
        weights=WeightsReference(version=3, uri=""),
    )
)


class Scene:
    def __init__(self, engine: FakeEngine, http: aiohttp.ClientSession) -> None:
        self.engine, self._http = engine, http
        self.supervised = Supervised(engine.server.app, engine.service)
        self.door = self.supervised.door
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def start(self) -> asyncio.Task[None]:
        self._port = await self.supervised.http.listen("127.0.0.1")
        ours, theirs = socket.socketpair()
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        obeying = asyncio.create_task(self.supervised.obey(theirs, port=self._port))
        assert await self.received() == Ready(port=self._port)
        return obeying

    def send(self, message: Begin | Drain | Ping) -> None:
        self._writer.write(encode_line(message))

    async def received(self) -> Any:
        async with asyncio.timeout(LONG_S):
            return decode_from_child(await self._reader.readline())

    def hang_up(self) -> None:
        self._writer.close()

    async def ask(
        self, body: Any = SHORT, *, path: str = GENERATE, method: str = "POST", **headers: str
    ) -> tuple[int, Any]:
        given = {
            "Authorization": "Bearer right",
            "X-SeamlessFlow-Job": str(JOB),
            "X-SeamlessFlow-Policy-Version": "3",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        url = URL(f"http://127.0.0.1:{self._port}{path}", encoded=True)
        async with self._http.request(method, url, data=msgspec.json.encode(body), headers=given) as response:
            raw = await response.read()
            return response.status, json.loads(raw) if raw.startswith(b"{") else raw

    async def verb(self, path: str, body: Any = None) -> None:
        async with self._http.post(self.engine.base_url + path, json=body) as response:
            assert response.status == 200, await response.text()

    async def answer(self, data: bytes) -> bytes:
        """Send bytes and return everything up to the end of the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(data)
        async with asyncio.timeout(LONG_S):
            answer = await reader.read()
        writer.close()
        return answer


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    engine = await start_fake_engine(version="3", step_delay_s=0.001)
    async with aiohttp.ClientSession() as http:
        made = Scene(engine, http)
        obeying = await made.start()
        yield made
        made.hang_up()
        await obeying  # it ends with the supervisor
    await made.supervised.http.stop()
    await engine.stop()


@pytest.fixture
async def opened(scene: Scene) -> Scene:
    scene.send(BEGIN)
    assert await scene.received() == Begun(phase_id=PHASE)
    return scene


async def test_before_a_phase_begins_nothing_gets_through(scene: Scene) -> None:
    assert await scene.ask() == (503, {"code": "draining"})
    assert scene.engine.num_sampled == 0


async def test_answers_are_the_engines_own_and_name_the_version(opened: Scene) -> None:
    status, answer = await opened.ask(X_SeamlessFlow_Job=show_id(IdKind.JOB, JOB))
    assert (status, len(answer["choices"][0]["token_ids"])) == (200, 3)
    head = await opened.answer(HEAD + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nx-seamlessflow-policy-version: 3\r\n" in head


@pytest.mark.parametrize("token", ["", "Bearer wrong", "Bearer rightly", "Basic right", "Bearer r\xefght"])
async def test_a_wrong_token_is_refused(opened: Scene, token: str) -> None:
    assert await opened.ask(Authorization=token) == (401, {"code": "unauthorized"})


@pytest.mark.parametrize(
    "method,path",
    [
        *(("POST", "/pause"), ("POST", "/update_weights"), ("POST", "/abort_requests"), ("GET", GENERATE)),
        *(("GET", "/"), ("GET", "/openapi.json"), ("POST", "/%70ause"), ("POST", "//pause")),
        *(("POST", "/health/../pause"), ("POST", "/inference/v1/generate/../../../pause")),
    ],
)
async def test_control_verbs_cannot_be_reached(opened: Scene, method: str, path: str) -> None:
    assert await opened.ask(method=method, path=path) == (404, {"code": "not_found"})
    assert not opened.engine.service.is_paused


@pytest.mark.parametrize("path", ["/health", "/metrics"])
async def test_health_and_metrics_need_the_token_only(opened: Scene, path: str) -> None:
    assert (await opened.ask(method="GET", path=path, X_SeamlessFlow_Policy_Version="9"))[0] == 200


async def test_another_version_or_job_is_refused(opened: Scene) -> None:
    version = {"code": "version_mismatch", "served_version": 3}
    assert await opened.ask(X_SeamlessFlow_Policy_Version="2") == (409, version)
    job = {"code": "job_mismatch", "served_version": 3}
    assert await opened.ask(X_SeamlessFlow_Job=str(UUID(int=6))) == (409, job)
    assert opened.engine.num_sampled == 0


async def test_requests_that_come_during_an_update_wait_and_meet_the_new_version(opened: Scene) -> None:
    await opened.verb("/start_weight_update")
    old = asyncio.create_task(opened.ask())
    new = asyncio.create_task(opened.ask(X_SeamlessFlow_Policy_Version="4"))
    leaving = asyncio.create_task(opened.ask())
    await until(lambda: len(opened.door._waiting) == 3, what="they wait")
    leaving.cancel()
    await until(lambda: len(opened.door._waiting) == 2, what="the client that left is forgotten")
    assert opened.door.num_in_flight == opened.engine.num_sampled == 0
    await opened.verb("/update_weights", {"update_info": {"path": "/"}})
    await opened.verb("/finish_weight_update", {"weight_version": "4"})
    assert await old == (409, {"code": "version_mismatch", "served_version": 4})
    status, answer = await new
    assert status == 200
    assert answer["choices"][0]["weight_versions"] == [{"version": "4", "start": 0, "end": 3}]


async def test_a_drain_refuses_those_that_wait_and_ends_the_others_with_their_tokens(opened: Scene) -> None:
    running = asyncio.create_task(opened.ask(ENDLESS))
    assert await opened.received() == Serving(num_in_flight=1)
    await opened.verb("/start_weight_update")
    waiting = asyncio.create_task(opened.ask())
    await until(lambda: bool(opened.door._waiting), what="it waits")
    opened.send(Drain(phase_id=PHASE))
    assert await waiting == (503, {"code": "draining"})
    assert (await running)[1]["choices"][0]["finish_reason"] == "abort"
    assert await opened.received() == Serving(num_in_flight=0)
    assert await opened.received() == Ended(phase_id=PHASE)
    assert await opened.ask() == (503, {"code": "draining"})


async def test_each_edge_is_one_message_and_the_number_between_them_follows(opened: Scene) -> None:
    running = [asyncio.create_task(opened.ask(ENDLESS)) for _ in range(20)]
    assert await opened.received() == Serving(num_in_flight=1)
    assert await opened.received() == Serving(num_in_flight=20)
    opened.send(Ping())
    assert await opened.received() == Pong()
    opened.send(Drain(phase_id=PHASE))
    assert await opened.received() == Serving(num_in_flight=0)
    await asyncio.gather(*running)


async def test_a_gateway_that_leaves_takes_its_request_from_the_engine(opened: Scene) -> None:
    for body in (ENDLESS, {**ENDLESS, "stream": True}):
        request = asyncio.create_task(opened.ask(body))
        assert await opened.received() == Serving(num_in_flight=1)
        request.cancel()
        assert await opened.received() == Serving(num_in_flight=0)
        await until(lambda: opened.engine.service.num_unfinished == 0, what="the engine drops it")


async def test_an_engine_that_dies_breaks_its_answers_off(opened: Scene) -> None:
    request = asyncio.create_task(opened.ask({**ENDLESS, "stream": True}))
    assert await opened.received() == Serving(num_in_flight=1)
    await opened.supervised.http.stop()
    with pytest.raises(aiohttp.ClientError):
        await request


@pytest.mark.parametrize(
    "data,status,code",
    [
        (b"hello\r\n\r\n", b"400", b""),
        (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400", b""),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", b"400", b""),
        (HEAD + b"Authorization: Bearer wrong\r\nConnection: close\r\n\r\n", b"400", b"bad_request"),
        (HEAD + b"Content-Length: %d\r\n\r\n" % (1 << 40), b"413", b"body_too_large"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n29\r\n" + b"x" * 41, b"413", b"body_too_large"),
        (HEAD + b"Content-Length: 38\r\nConnection: close\r\n\r\n" + b"x" * 38, b"503", b"overloaded"),
        (b"GET /health HTTP/1.1\r\nA: " + b"x" * (65 << 10), b"431", b"head_too_large"),
        (b"GET /health HT", b"408", b"timeout"),
        (HEAD + b"Content-Length: 9\r\n\r\n{", b"408", b"timeout"),
        (HEAD.replace(b"right", b"wrong") + b"Content-Length: 9\r\n\r\n{", b"401", b"unauthorized"),
    ],
)
async def test_raw_abuse_has_an_answer_and_an_end_and_others_are_served(
    opened: Scene, monkeypatch: pytest.MonkeyPatch, data: bytes, status: bytes, code: bytes
) -> None:
    monkeypatch.setattr(protocol, "ROUND_S", 0.02)
    monkeypatch.setattr(protocol, "LINGER_S", 0.1)
    keeper = opened.supervised.http._config.http_protocol_class.keeper  # type: ignore[attr-defined]
    monkeypatch.setattr(keeper, "limits", dataclasses.replace(keeper.limits, head_s=0.1, body_s=0.1))
    bodies = opened.engine.server.app.bodies
    monkeypatch.setattr(bodies, "max_body_bytes", 40)
    monkeypatch.setattr(bodies, "_max_total_bytes", 36)
    answer = await opened.answer(data)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert code in answer
    assert bodies._num_bytes == opened.door.num_in_flight == 0
    assert (await opened.ask(None, method="GET", path="/health"))[0] == 200
