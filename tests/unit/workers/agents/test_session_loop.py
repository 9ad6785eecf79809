"""What a loop of an agent runner tells the gateway of the sessions that it has."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from seamlessflow.core.protocol.data_plane import (
    GroupLeaseReply,
    GroupLeaseRequest,
    LeasedGroup,
    LeasedSession,
)
from seamlessflow_workers.agents import session_loop
from seamlessflow_workers.agents.session_logs import SessionLogSender
from seamlessflow_workers.agents.session_loop import SessionLoop

SESSIONS = [UUID(int=1), UUID(int=2)]
GROUP = LeasedGroup(
    group_id=UUID(int=9),
    index=0,
    task={},
    sessions=[
        LeasedSession(session_id=session_id, slot=slot, attempt=1, api_key="sfs_key")
        for slot, session_id in enumerate(SESSIONS)
    ],
)


class Gateway:
    """Gives one group, then nothing; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[GroupLeaseRequest] = []
        self.held: list[list[UUID]] = []  # what it would be told if it had to be asked again
        self.was_asked_twice = asyncio.Event()

    async def groups_lease(self, request: GroupLeaseRequest, *, held: list[UUID]) -> GroupLeaseReply:
        self.asked.append(request)
        self.held.append(held)
        if len(self.asked) == 1:
            return GroupLeaseReply(groups=[GROUP])
        self.was_asked_twice.set()
        await asyncio.Event().wait()
        raise AssertionError("cancelled before")

    async def session_logs_send(self, _logs: Any) -> None:
        raise AssertionError("no log is kept")

    async def session_waited_s(self, _session_id: UUID) -> float:
        return 0.0

    async def sessions_ended(self, _finishes: Any) -> dict[UUID, str]:
        return {}


class Endless:
    """An environment whose episodes go on for ever."""

    async def run(self, *_: Any, **__: Any) -> None:
        await asyncio.Event().wait()


async def gateway_asked_twice() -> Gateway:
    gateway = Gateway()
    client: Any = gateway
    environment: Any = Endless()
    loop = SessionLoop(
        environment=environment,
        client=client,
        policy_url="http://gateway",
        timeout_s=60.0,
        max_sessions=8,
        min_free_slots=2,
        is_evaluation=False,
        on_change=lambda: None,
        logs=SessionLogSender(client.session_logs_send, limit_bytes=0),
    )
    leasing = asyncio.create_task(loop.lease_forever())
    try:
        async with asyncio.timeout(10.0):
            await gateway.was_asked_twice.wait()
    finally:
        leasing.cancel()
        await loop.wind_up(0.0)
    return gateway


async def test_a_loop_says_at_once_what_it_has_and_again_when_it_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_loop, "LIST_EVERY_S", 0.0)
    first, second = (await gateway_asked_twice()).asked
    assert first.held == []
    assert second.held == SESSIONS


async def test_a_loop_does_not_say_it_with_every_request() -> None:
    gateway = await gateway_asked_twice()
    first, second = gateway.asked
    assert first.held == []
    assert second.held is None
    assert gateway.held == [[], SESSIONS], "but it would if it had to ask again"
