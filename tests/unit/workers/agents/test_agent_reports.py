"""How a runner reports the ends of sessions: several in one request, none delayed that others wait for."""

import asyncio
from collections.abc import Sequence
from typing import cast
from uuid import UUID, uuid4

import pytest

from seamlessflow.core.protocol.data_plane import SessionFinish
from seamlessflow_workers.agents import reports
from seamlessflow_workers.agents.gateway_client import RunnerClient
from seamlessflow_workers.agents.reports import Reports
from seamlessflow_workers.clients.http import FencedOff

FOREVER_S = 3600.0


def ended() -> SessionFinish:
    return SessionFinish(session_id=uuid4(), reward=1.0)


class FakeClient:
    """Answers a request when told to; `refused` is what it says to each."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.requests: list[Sequence[SessionFinish]] = []
        self.is_open = asyncio.Event()
        self.asked = asyncio.Event()
        self.refused: dict[UUID, str] = {}
        self.error: Exception | None = None
        if is_open:
            self.is_open.set()

    async def sessions_ended(self, finishes: Sequence[SessionFinish]) -> dict[UUID, str]:
        self.requests.append(finishes)
        self.asked.set()
        await self.is_open.wait()
        if self.error is not None:
            raise self.error
        return self.refused


def reports_to(client: FakeClient, told: asyncio.Event) -> Reports:
    return Reports(cast(RunnerClient, client), on_delivered=told.set)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent because time passed: only because something asked for it."""
    monkeypatch.setattr(reports, "PATIENCE_S", FOREVER_S)


async def test_ends_wait_for_the_one_that_makes_their_group_whole() -> None:
    client, told = FakeClient(), asyncio.Event()
    sender = reports_to(client, told)
    ends = [ended() for _ in range(4)]
    for end in ends:
        sender.add(end, is_urgent=end is ends[-1])

    await told.wait()
    assert client.requests == [ends]
    assert len(sender) == 0


async def test_groups_that_become_whole_together_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "GATHER_S", 0.2)
    client, told = FakeClient(), asyncio.Event()
    sender = reports_to(client, told)
    sender.add(first := ended(), is_urgent=True)
    await asyncio.sleep(0.01)
    sender.add(second := ended(), is_urgent=True)

    await told.wait()
    assert client.requests == [[first, second]]


async def test_what_ends_while_a_request_is_under_way_goes_with_the_next() -> None:
    client, told = FakeClient(is_open=False), asyncio.Event()
    sender = reports_to(client, told)
    first, *later = [ended() for _ in range(4)]
    sender.add(first, is_urgent=True)
    await client.asked.wait()
    for end in later:
        sender.add(end, is_urgent=True)
    assert len(sender) == 4

    client.is_open.set()
    await sender.flush(timeout_s=FOREVER_S)
    assert client.requests == [[first], later]


async def test_an_end_that_nothing_follows_is_told_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "PATIENCE_S", 0.01)
    client, told = FakeClient(), asyncio.Event()
    reports_to(client, told).add(end := ended(), is_urgent=False)

    await told.wait()
    assert client.requests == [[end]]


async def test_a_refusal_is_final_and_those_after_it_are_told(caplog: pytest.LogCaptureFixture) -> None:
    client, told = FakeClient(), asyncio.Event()
    sender = reports_to(client, told)
    client.error = FencedOff("the phase is over")
    sender.add(refused := ended(), is_urgent=True)
    await told.wait()
    client.error = None
    sender.add(end := ended(), is_urgent=True)
    await sender.flush(timeout_s=FOREVER_S)

    assert client.requests == [[refused], [end]]
    assert f"session {refused.session_id} was not accepted: the phase is over" in caplog.text


async def test_an_end_that_is_refused_for_what_it_says_becomes_a_failure() -> None:
    """The session stayed open, and the gateway had it run again every ten seconds, for ever."""
    client, told = FakeClient(), asyncio.Event()
    sender = reports_to(client, told)
    bad, good = ended(), ended()
    client.refused = {bad.session_id: "metrics: a name may have at most 120 characters"}
    sender.add(bad, is_urgent=False)
    sender.add(good, is_urgent=True)
    await told.wait()
    assert sender.session_ids == [bad.session_id], "so the gateway does not miss it meanwhile"
    await sender.flush(timeout_s=FOREVER_S)

    failure = "the gateway refused how it ended: metrics: a name may have at most 120 characters"
    assert client.requests == [
        [bad, good],
        [SessionFinish(session_id=bad.session_id, failure=failure)],
    ], "a failure that is refused too is not told again"


async def test_a_gateway_that_stays_away_is_given_up_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    client, told = FakeClient(is_open=False), asyncio.Event()
    sender = reports_to(client, told)
    sender.add(ended(), is_urgent=True)
    sender.add(ended(), is_urgent=False)

    await sender.flush(timeout_s=0.01)
    assert not told.is_set()
    assert "2 ends of sessions could not be reported" in caplog.text


async def test_a_flush_with_nothing_to_tell_asks_nobody() -> None:
    client = FakeClient()
    await reports_to(client, asyncio.Event()).flush(timeout_s=FOREVER_S)
    assert client.requests == []
