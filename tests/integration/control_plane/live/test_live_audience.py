"""The feeder on a real broker: it works while somebody has a socket open, in whatever process, and
rests while nobody has. No socket misses what changed because of it."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from unittest import mock

import pytest
import redis
from channels.db import database_sync_to_async
from django.conf import settings
from django.db import connection

from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.live import broker, feeder, hub
from seamlessflow.control_plane.live.feeder import Feeder, feeding
from seamlessflow.control_plane.live.hub import hub_get
from seamlessflow.core.protocol.live_events import (
    AUDIENCE_CHANNEL,
    AUDIENCE_KEY,
    AUDIENCE_TTL_S,
    stream_key,
)
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fakes.fake_control_plane import until
from tests.fixtures.control_plane import Cast
from tests.integration.control_plane.live.test_live_socket import (
    Browser,
    empty_broker,
    job_event,
    rename,
    tick,
)

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["empty_broker"]  # a fixture that every test here uses
NEVER_S = 60.0  # longer than any test waits
SOON_S = 3.0
SHORT_TTL_S = 1


@pytest.fixture(autouse=True)
def pause_is_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "IDLE_S", NEVER_S)


async def turn(made: Feeder, stop: threading.Event | None = None) -> None:
    """Let the feeder turn in a thread of its own, as it does in the scheduler's process."""

    def turning() -> None:
        try:
            made.turn(stop or threading.Event())
        finally:
            connection.close()

    await asyncio.to_thread(turning)


async def turn_shortly(made: Feeder) -> None:
    async with asyncio.timeout(SOON_S):
        await turn(made)


@contextlib.asynccontextmanager
async def pausing(made: Feeder) -> AsyncIterator["asyncio.Task[None]"]:
    """Let the feeder pause; its turn ends with the context at the latest."""
    stop = threading.Event()
    pause = asyncio.create_task(turn(made, stop))
    try:
        yield pause
    finally:
        stop.set()
        await asyncio.to_thread(broker.audience_knock)
        await pause


async def unheard_feeder() -> Feeder:
    """Return a feeder whose subscription is confirmed, which ended its first pause."""
    made: Feeder = await database_sync_to_async(Feeder)()
    await turn_shortly(made)
    return made


async def test_the_first_socket_ends_the_pause_at_once_and_the_feeder_then_ticks() -> None:
    made = await unheard_feeder()
    with mock.patch.object(made, "tick", wraps=made.tick) as ticks:
        async with pausing(made) as pause:
            await asyncio.sleep(0.5)
            assert not pause.done(), "nobody listens"
            async with Browser():
                async with asyncio.timeout(SOON_S):
                    await asyncio.shield(pause)
                assert not ticks.called
                for _ in range(3):
                    await turn_shortly(made)
                assert ticks.call_count == 3
    made.close()


async def test_a_feeder_without_an_audience_compares_and_publishes_nothing(cast: Cast) -> None:
    job: Job = await database_sync_to_async(cast.job)()
    made = await unheard_feeder()
    await rename(job, "unheard")
    with mock.patch.object(made._publisher, "publish") as published:
        async with pausing(made):
            await asyncio.sleep(0.3)
    assert not published.called
    made.close()


async def test_a_socket_that_opens_during_a_turn_ends_the_pause_that_follows() -> None:
    made = await unheard_feeder()
    with mock.patch.object(made._publisher, "has_audience", return_value=False):  # asked before the socket
        async with Browser():
            await until(_is_attended, what="the lease")
            await turn_shortly(made)
    made.close()


async def test_a_socket_gets_what_happened_between_its_snapshot_and_the_end_of_the_pause(
    cast: Cast,
) -> None:
    """The worst moment: the feeder asked before the socket attended, and reads where tables end after its snapshot."""
    job: Job = await database_sync_to_async(cast.job)()
    topic = f"job:{show_id(IdKind.JOB, job.id)}"
    made = await unheard_feeder()
    await tick(made)  # everything else is published
    async with Browser() as browser:
        await browser.say(token=cast.owner.secret, subscribe=[topic])
        assert (await browser.hear())["kind"] == "snapshot"
        await database_sync_to_async(job_event)(job, "in between")
        await database_sync_to_async(made.skip)()
        await tick(made)
        frame = await browser.hear()
        # The epoch began anew after the first snapshot, so another one may come in place of the delta.
        assert "in between" in str(frame)
    made.close()


async def test_what_happened_unheard_is_not_published_later(cast: Cast) -> None:
    job: Job = await database_sync_to_async(cast.job)()
    made = await unheard_feeder()
    for number in range(3):
        await database_sync_to_async(job_event)(job, f"unheard {number}")
    await database_sync_to_async(made.skip)()
    assert await database_sync_to_async(Event.objects.count)() >= 3
    with mock.patch.object(made._publisher, "publish") as published:
        await tick(made)
    assert "unheard" not in str(published.call_args)
    made.close()


async def test_a_client_that_comes_back_learns_at_once_what_it_missed(cast: Cast) -> None:
    """The change is one that no later tick would find: its job ended long ago when the client is back."""
    job: Job = await database_sync_to_async(cast.job)()
    topic = f"job:{show_id(IdKind.JOB, job.id)}"
    with feeding():
        async with Browser() as browser:
            await until(lambda: _exists(stream_key(topic)), what="the feeder has published everything")
            await browser.say(token=cast.owner.secret, subscribe=[topic])
            snapshot = await browser.hear()
        _audience_leaves()
        await asyncio.sleep(0.5)  # more than a tick: the feeder has noticed, and rests
        await Job.objects.filter(id=job.id).aupdate(
            name="ended unheard", state="completed", ended_at="2020-01-01T00:00:00Z"
        )
        async with Browser() as browser:
            since = {topic: [snapshot["epoch"], snapshot["seq"]]}
            await browser.say(token=cast.owner.secret, subscribe=[topic], since=since)
            frame = await browser.hear()
            assert frame["kind"] == "snapshot"
            assert frame["data"]["jobs"][0]["name"] == "ended unheard"


async def test_a_feeder_without_an_audience_ends_at_once_when_its_process_does() -> None:
    with feeding():
        await asyncio.sleep(0.5)
        ends_at = time.monotonic()
    assert time.monotonic() - ends_at < SOON_S


async def test_the_lease_lasts_as_long_as_a_process_has_sockets_and_then_expires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker, "AUDIENCE_TTL_S", SHORT_TTL_S)
    monkeypatch.setattr(hub, "WATCH_EVERY_S", SHORT_TTL_S / 3)
    async with Browser():
        await until(_is_attended, what="the lease")
        await asyncio.sleep(2 * SHORT_TTL_S)
        assert _is_attended()
        for task in hub_get()._tasks:  # the process dies: nobody takes the lease back
            task.cancel()
        await until(lambda: not _is_attended(), what="the lease expires")


async def test_sockets_of_a_process_that_stood_still_for_longer_than_its_lease_get_snapshots(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if another process holds a lease again by the time."""
    monkeypatch.setattr(hub, "WATCH_EVERY_S", 0.5)
    job: Job = await database_sync_to_async(cast.job)()
    made = await unheard_feeder()
    async with Browser() as browser:
        await browser.say(token=cast.owner.secret, subscribe=[f"job:{show_id(IdKind.JOB, job.id)}"])
        assert (await browser.hear())["kind"] == "snapshot"
        await database_sync_to_async(job_event)(job, "missed")
        with mock.patch.object(made._publisher, "has_audience", return_value=False):
            await database_sync_to_async(made.skip)()
        frame = await browser.hear()
        assert (frame["kind"], "missed" in str(frame)) == ("snapshot", True)
    made.close()


async def test_a_lease_outlives_the_pauses_between_its_renewals() -> None:
    assert hub.WATCH_EVERY_S < AUDIENCE_TTL_S / 2


async def test_a_lease_that_another_process_holds_is_renewed_without_waking_the_feeder() -> None:
    with redis.Redis.from_url(settings.EVENTS_URL) as client, client.pubsub() as heard:
        heard.subscribe(AUDIENCE_CHANNEL)
        assert heard.get_message(timeout=SOON_S)["type"] == "subscribe"
        client.set(AUDIENCE_KEY, 1, ex=2)
        async with Browser():
            await until(lambda: client.ttl(AUDIENCE_KEY) > 2, what="the renewal")
        assert heard.get_message(timeout=0.1) is None


def _exists(key: str) -> bool:
    with redis.Redis.from_url(settings.EVENTS_URL) as client:
        return bool(client.exists(key))


def _is_attended() -> bool:
    return _exists(AUDIENCE_KEY)


def _audience_leaves() -> None:
    """Let the lease expire now, as it does AUDIENCE_TTL_S after the last renewal."""
    with redis.Redis.from_url(settings.EVENTS_URL) as client:
        client.delete(AUDIENCE_KEY)
