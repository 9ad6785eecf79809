"""A gateway for runner tests: the runner contract and an OpenAI endpoint behind a real socket, restartable in place.

Sessions are handed out from `groups`, once each; what runners report is collected in `finished`.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import msgspec
from aiohttp import web

from seamlessflow.core.protocol.data_plane import (
    GroupLeaseReply,
    GroupLeaseRequest,
    LeasedGroup,
    LeasedSession,
    SessionFinish,
    SessionsEnded,
    SessionsHeldReply,
    SessionsHeldRequest,
    SessionsRefused,
)

CREDENTIAL = "sfp_test"
POLL_S = 0.01
NUM_LEASE_POLLS = 50  # an empty reply comes after half a second

Messages = Sequence[Mapping[str, Any]]
Policy = Callable[[Messages], Mapping[str, Any]]


def honest_policy(messages: Messages) -> Mapping[str, Any]:
    """Calls the tool with the expression it was asked for, then repeats the tool's answer."""
    if messages[-1]["role"] == "tool":
        return {"role": "assistant", "content": messages[-1]["content"]}
    return tool_call(messages[-1]["content"].removeprefix("What is ").removesuffix("?"))


def tool_call(expression: str) -> Mapping[str, Any]:
    function = {"name": "calc", "arguments": f'{{"expression": "{expression}"}}'}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


def group_of(task: dict[str, Any], *, num_sessions: int) -> LeasedGroup:
    sessions = [
        LeasedSession(session_id=uuid4(), slot=slot, attempt=1, api_key=f"key-{uuid4()}")
        for slot in range(num_sessions)
    ]
    return LeasedGroup(group_id=uuid4(), index=0, task=task, sessions=sessions)


class FakeGateway:
    def __init__(self, policy: Policy = honest_policy) -> None:
        self.policy = policy
        self.groups: deque[LeasedGroup] = deque()
        self.held_out: deque[LeasedGroup] = deque()
        self.finished: list[SessionFinish] = []
        self.reports: list[int] = []  # ends in each request
        self.keys_seen: list[str] = []
        self.requests_seen: list[Mapping[str, Any]] = []
        self.num_retries = 0
        self.lease_status = 200
        self.answer_delay_s = 0.0
        self.held_s = 0.0  # what it says of every session
        self.credential = CREDENTIAL
        self.num_open = 0
        self.max_open = 0
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/runner/v1/groups/lease", self._lease)
        app.router.add_post("/runner/v1/sessions/ended", self._ended)
        app.router.add_post("/runner/v1/sessions/held", self._held)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def outcomes(self) -> dict[UUID, SessionFinish]:
        return {finish.session_id: finish for finish in self.finished}

    async def _lease(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {self.credential}"
        ask = msgspec.json.decode(await request.read(), type=GroupLeaseRequest)
        if self.lease_status != 200:
            return web.json_response({"title": "no", "detail": "not your phase"}, status=self.lease_status)
        queue = self.held_out if ask.is_evaluation else self.groups
        for _ in range(NUM_LEASE_POLLS):
            if queue:
                break
            await asyncio.sleep(POLL_S)
        groups, room = [], ask.max_sessions
        while queue and len(queue[0].sessions) <= room:
            room -= len(queue[0].sessions)
            groups.append(queue.popleft())
        return web.Response(body=msgspec.json.encode(GroupLeaseReply(groups=groups)))

    async def _ended(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {self.credential}"
        finishes = msgspec.json.decode(await request.read(), type=SessionsEnded).finishes
        self.reports.append(len(finishes))
        self.finished += finishes
        return web.Response(body=msgspec.json.encode(SessionsRefused()))

    async def _held(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=SessionsHeldRequest).session_ids
        held = SessionsHeldReply(held_s=dict.fromkeys(asked, self.held_s))
        return web.Response(body=msgspec.json.encode(held))

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.keys_seen.append(request.headers["Authorization"].removeprefix("Bearer "))
        self.requests_seen.append(body)
        self.num_retries += int(request.headers["x-stainless-retry-count"]) > 0
        self.num_open += 1
        self.max_open = max(self.max_open, self.num_open)
        try:
            await asyncio.sleep(self.answer_delay_s)
        finally:
            self.num_open -= 1
        choice = {"index": 0, "finish_reason": "stop", "message": self.policy(body["messages"])}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return web.json_response(
            {
                "id": "x",
                "object": "chat.completion",
                "created": 1,
                "model": "policy",
                "choices": [choice],
                "usage": usage,
            }
        )


@contextlib.asynccontextmanager
async def running_gateway(policy: Policy = honest_policy) -> AsyncIterator[FakeGateway]:
    gateway = FakeGateway(policy)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


async def until(condition: Callable[[], bool], *, what: str, timeout_s: float = 30.0) -> None:
    deadline_at = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_at, f"not within {timeout_s:g} s: {what}"
        await asyncio.sleep(POLL_S)
