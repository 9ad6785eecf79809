"""The feeder's pace on a real broker: slow while nobody has a socket open, at once faster when
somebody has, in whatever process, and slow again some seconds after the last process is gone."""

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

from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.live import broker, feeder, hub
from seamlessflow.control_plane.live.feeder import Feeder, feeding
from seamlessflow.control_plane.live.hub import hub_get
from seamlessflow.core.protocol.live_events import AUDIENCE_CHANNEL, AUDIENCE_KEY, AUDIENCE_TTL_S, stream_key
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fakes.fake_control_plane import until
from tests.fixtures.control_plane import Cast
from tests.integration.control_plane.live.test_live_socket import Browser, empty_broker, rename

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["empty_broker"]  # a fixture that every test here uses
NEVER_S = 60.0  # longer than any test waits
SOON_S = 2.0
SHORT_TTL_S = 1


@contextlib.asynccontextmanager
async def resting(at_pace_of: Feeder) -> AsyncIterator["asyncio.Task[None]"]:
    """Let the feeder rest in a thread; end the rest with the context."""
    stop = threading.Event()
    rest = asyncio.create_task(asyncio.to_thread(at_pace_of.rest, stop))
    try:
        yield rest
    finally:
        stop.set()
        await asyncio.to_thread(broker.audience_knock)
        await rest


async def rested_feeder() -> Feeder:
    """Return a feeder whose subscription is confirmed, which ended its first rest."""
    made: Feeder = await database_sync_to_async(Feeder)()
    await rests_shortly(made)
    return made


async def rests_shortly(made: Feeder) -> None:
    async with asyncio.timeout(SOON_S):
        await asyncio.to_thread(made.rest, threading.Event())


@pytest.fixture(autouse=True)
def unheard_pace_is_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "UNHEARD_TICK_S", NEVER_S)


async def test_the_first_socket_ends_the_rest_at_once_and_later_rests_are_short() -> None:
    made = await rested_feeder()
    async with resting(made) as rest:
        await asyncio.sleep(0.5)
        assert not rest.done(), "nobody listens"
        async with Browser():
            async with asyncio.timeout(SOON_S):
                await asyncio.shield(rest)
            for _ in range(3):
                await rests_shortly(made)
    made.close()


async def test_a_socket_that_opens_during_a_tick_is_not_missed(cast: Cast) -> None:
    made = await rested_feeder()
    with mock.patch.object(made._publisher, "has_audience", return_value=False):  # asked before the socket
        async with Browser():
            await until(_is_attended, what="the lease")
            await rests_shortly(made)
    made.close()


async def test_the_lease_lasts_as_long_as_a_process_has_sockets_and_then_expires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker, "AUDIENCE_TTL_S", SHORT_TTL_S)
    monkeypatch.setattr(hub, "WATCH_EVERY_S", SHORT_TTL_S / 3)
    made = await rested_feeder()
    async with Browser():
        await until(_is_attended, what="the lease")
        await asyncio.sleep(2 * SHORT_TTL_S)
        assert made._publisher.has_audience()
        for task in hub_get()._tasks:  # the process dies: nobody takes the lease back
            task.cancel()
        await until(lambda: not made._publisher.has_audience(), what="the lease expires")
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


async def test_a_client_that_comes_back_is_told_at_once_what_changed_while_nobody_listened(
    cast: Cast,
) -> None:
    job: Job = await database_sync_to_async(cast.job)()
    topic = f"job:{show_id(IdKind.JOB, job.id)}"
    with feeding():
        await until(lambda: _exists(stream_key(topic)), what="the feeder has published everything")
        async with Browser() as browser:
            await browser.say(token=cast.owner.secret, subscribe=[topic])
            snapshot = await browser.hear()
        _audience_leaves()
        await asyncio.sleep(0.5)  # more than a tick: the feeder has noticed, and rests
        await rename(job, "changed unheard")
        async with Browser() as browser:
            since = {topic: [snapshot["epoch"], snapshot["seq"]]}
            await browser.say(token=cast.owner.secret, subscribe=[topic], since=since)
            while "changed unheard" not in str(frame := await browser.hear()):
                pass
            assert frame["kind"] == "delta"


async def test_a_feeder_without_an_audience_ends_at_once_when_its_process_does() -> None:
    with feeding():
        await asyncio.sleep(0.5)
        ends_at = time.monotonic()
    assert time.monotonic() - ends_at < SOON_S


def _exists(key: str) -> bool:
    with redis.Redis.from_url(settings.EVENTS_URL) as client:
        return bool(client.exists(key))


def _is_attended() -> bool:
    return _exists(AUDIENCE_KEY)


def _audience_leaves() -> None:
    """Let the lease expire now, as it does AUDIENCE_TTL_S after the last renewal."""
    with redis.Redis.from_url(settings.EVENTS_URL) as client:
        client.delete(AUDIENCE_KEY)
