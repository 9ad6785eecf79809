"""The live socket on a real broker and database: snapshot, numbered deltas, replay, isolation, an
outage."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.consumer import AsyncConsumer
from channels.db import database_sync_to_async
from django.contrib.auth.models import AnonymousUser
from django.db import connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from seamlessflow.control_plane.common.models import Event, SubjectType
from seamlessflow.control_plane.common.services import event_record
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.live.consumers import LiveConsumer
from seamlessflow.control_plane.live.feeder import BEAT_EVERY_TICKS, RATE_EVERY_TICKS, Feeder
from seamlessflow.control_plane.live.frames import Frame
from seamlessflow.control_plane.live.hub import MAX_QUEUED_BATCHES, Mailbox, hub_get
from seamlessflow.control_plane.trajectories.models import RolloutGroup
from seamlessflow.core.protocol.live_rows import FrameKind
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fakes.fake_control_plane import until
from tests.fixtures.control_plane import Cast, Person, group_make
from tests.fixtures.services import ValkeyUrls

pytestmark = pytest.mark.django_db(transaction=True)
IDLE_S = 6.0  # longer than the time-out of five seconds that newer clients set by default


@pytest.fixture(autouse=True)
async def empty_broker(embedded_valkey: ValkeyUrls, settings: Settings) -> AsyncIterator[None]:
    settings.EVENTS_URL = embedded_valkey.events
    client = redis.Redis.from_url(embedded_valkey.events)
    client.flushdb()
    yield
    client.close()
    # The thread that asynchronous code reads the database in would keep its connection beyond the test database.
    await sync_to_async(connections.close_all)()


class Browser:
    """A client of the socket, which is signed in with a session if `user` is given."""

    def __init__(self, user: object = None) -> None:
        scope = {"type": "websocket", "path": "/ws/live", "user": user or AnonymousUser()}
        self.socket = ApplicationCommunicator(LiveConsumer.as_asgi(), scope)
        self.lines: list[str] = []

    async def __aenter__(self) -> "Browser":
        await self.socket.send_input({"type": "websocket.connect"})
        assert (await self.socket.receive_output(timeout=5))["type"] == "websocket.accept"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.socket.wait(timeout=5)

    async def say(self, **message: Any) -> None:
        await self.socket.send_input({"type": "websocket.receive", "text": json.dumps(message)})

    async def hear(self) -> dict[str, Any]:
        """Return the next frame; a message contains one per line."""
        if not self.lines:
            self.lines = (await self.socket.receive_output(timeout=5))["text"].split("\n")
        frame: dict[str, Any] = json.loads(self.lines.pop(0))
        return frame


async def tick(feeder: Feeder) -> int:
    num_deltas: int = await database_sync_to_async(feeder.tick)()
    return num_deltas


async def feeder_make() -> Feeder:
    """Return a feeder that has published the current state."""
    feeder: Feeder = await database_sync_to_async(Feeder)()
    await tick(feeder)
    return feeder


async def rename(job: Job, name: str) -> None:
    await Job.objects.filter(id=job.id).aupdate(name=name)


async def test_a_subscriber_gets_a_snapshot_then_numbered_deltas(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    topic = name = f"job:{show_id(IdKind.JOB, job.id)}"
    feeder = await feeder_make()
    async with Browser() as browser:
        await browser.say(token=cast.owner.secret, subscribe=[name])
        snapshot = await browser.hear()
        assert (snapshot["kind"], snapshot["topic"]) == ("snapshot", topic)
        assert snapshot["data"]["jobs"][0]["state"] == "queued"
        for number in (1, 2):
            await rename(job, f"name {number}")
            await tick(feeder)
            delta = await browser.hear()
            assert delta["kind"] == "delta"
            assert (delta["epoch"], delta["seq"]) == (snapshot["epoch"], snapshot["seq"] + number)
            assert delta["data"]["jobs"][0]["name"] == f"name {number}"
    feeder.close()


async def test_a_client_that_reconnects_gets_the_deltas_it_missed(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    topic = name = f"job:{show_id(IdKind.JOB, job.id)}"
    feeder = await feeder_make()
    async with Browser() as browser:
        await browser.say(token=cast.owner.secret, subscribe=[name])
        snapshot = await browser.hear()
    for number in range(3):
        await rename(job, f"name {number}")
        await tick(feeder)
    async with Browser() as browser:
        since = {topic: [snapshot["epoch"], snapshot["seq"]]}
        await browser.say(token=cast.owner.secret, subscribe=[name], since=since)
        frames = [await browser.hear() for _ in range(3)]
        assert [frame["seq"] - snapshot["seq"] for frame in frames] == [1, 2, 3]
        assert {frame["kind"] for frame in frames} == {"delta"}
    async with Browser() as browser:
        await browser.say(token=cast.owner.secret, subscribe=[name], since={topic: ["another life", 1]})
        assert (await browser.hear())["kind"] == "snapshot"
    feeder.close()


async def test_another_project_sees_nothing(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    async with Browser() as browser:
        await browser.say(
            token=cast.outsider.secret, subscribe=[f"job:{show_id(IdKind.JOB, job.id)}", "jobs"]
        )
        assert (await browser.hear())["kind"] == "error"
        listed = await browser.hear()
        assert listed["topic"] == f"jobs:{cast.outsider.project.id}"
        assert listed["data"] == {"jobs": [], "truncated": []}


async def test_an_anonymous_caller_is_told_to_sign_in_and_disconnected(cast: Cast) -> None:
    async with Browser() as browser:
        await browser.say(subscribe=["jobs"])
        assert "sign in" in (await browser.hear())["data"]["detail"]
        assert (await browser.socket.receive_output(timeout=5))["code"] == 4401


async def test_a_signed_in_browser_needs_no_token(cast: Cast) -> None:
    async with Browser(cast.member.user) as browser:
        await browser.say(subscribe=["machines"])
        told = (await browser.hear())["data"]
        assert told == {"machines": [], "intervals": [], "edits": [], "truncated": []}


async def test_a_socket_that_cannot_be_written_to_is_closed_so_that_the_page_opens_another(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to go quiet: nothing told its page that no more would come."""
    job = await database_sync_to_async(cast.job)()
    feeder = await feeder_make()

    async def fails(*_: object) -> None:
        raise OSError("the database is away")

    async with Browser(cast.owner.user) as browser:
        await browser.say(subscribe=[f"job:{show_id(IdKind.JOB, job.id)}"])
        assert (await browser.hear())["kind"] == "snapshot"
        monkeypatch.setattr(LiveConsumer, "_forward", fails)
        await rename(job, "told")
        await tick(feeder)
        closed = await browser.socket.receive_output(timeout=5)
    feeder.close()

    assert (closed["type"], closed["code"]) == ("websocket.close", 1011)


async def test_a_client_that_disconnects_during_a_frame_causes_no_error(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """ASGI raises OSError for what is sent afterwards; the socket still leaves the hub."""
    job = await database_sync_to_async(cast.job)()
    feeder = await feeder_make()

    async def gone(*_: object) -> None:
        raise OSError("the client has left")

    async with Browser(cast.owner.user) as browser:
        await browser.say(subscribe=[f"job:{show_id(IdKind.JOB, job.id)}"])
        assert (await browser.hear())["kind"] == "snapshot"
        assert hub_get()._all
        monkeypatch.setattr(AsyncConsumer, "send", gone)
        with caplog.at_level("INFO"):
            await rename(job, "told")
            await tick(feeder)
            await until(lambda: "a socket ends" in caplog.text, what="the sender ends")
    feeder.close()

    assert not hub_get()._all
    assert "Traceback" not in caplog.text


async def test_a_silent_socket_stays_open(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    feeder = await feeder_make()
    async with Browser(cast.owner.user) as browser:
        await browser.say(subscribe=["jobs"])
        await browser.hear()
        await asyncio.sleep(IDLE_S)
        await rename(job, "after a long silence")
        await tick(feeder)
        assert (await browser.hear())["data"]["jobs"][0]["name"] == "after a long silence"
    feeder.close()


async def test_an_unavailable_broker_is_reported_and_snapshots_still_work(
    cast: Cast, settings: Settings
) -> None:
    settings.EVENTS_URL = f"unix:///nonexistent/{uuid4().hex}.sock"
    async with Browser(cast.owner.user) as browser:
        await browser.say(subscribe=["machines"])
        kinds = {frame["kind"]: frame["data"] for frame in [await browser.hear(), await browser.hear()]}
        assert kinds["notice"] == {"code": "behind"}
        assert kinds["snapshot"]["machines"] == []


async def test_a_feeder_repeats_what_the_broker_did_not_accept(cast: Cast, settings: Settings) -> None:
    job = await database_sync_to_async(cast.job)()
    feeder = await feeder_make()
    await rename(job, "unheard")
    publisher, feeder._publisher = feeder._publisher, _Deaf()  # type: ignore[assignment]
    with pytest.raises(redis.ConnectionError):
        await tick(feeder)
    feeder._publisher = publisher
    assert await tick(feeder) == 2
    assert await tick(feeder) == 0
    feeder.close()


async def test_a_quiet_platform_sends_a_frame_every_few_seconds(cast: Cast) -> None:
    feeder = await feeder_make()
    async with Browser(cast.owner.user) as browser:
        await browser.say(subscribe=["machines"])
        assert (await browser.hear())["kind"] == "snapshot"
        said = [await tick(feeder) for _ in range(BEAT_EVERY_TICKS)]
        assert sum(said) == 2  # on `machines`, and on the topic of those who may not see the open pool
        assert (await browser.hear())["topic"] == "machines"
    feeder.close()


async def test_groups_are_sent_as_rows_and_their_moves_are_not_events(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    feeder = await feeder_make()
    await database_sync_to_async(group_make)(job, 0)
    await database_sync_to_async(group_event)(job)
    async with Browser(cast.owner.user) as browser:
        await browser.say(subscribe=[f"job:{show_id(IdKind.JOB, job.id)}"])
        snapshot = await browser.hear()
        assert [(row["index"], row["state"]) for row in snapshot["data"]["groups"]] == [(0, "open")]
        assert [row["kind"] for row in snapshot["data"]["events"]] == ["job.state"]
        await RolloutGroup.objects.filter(job=job).aupdate(state="ready", reward_mean=0.5)
        for _ in range(RATE_EVERY_TICKS):
            await tick(feeder)
        delta = await browser.hear()
        assert [(row["state"], row["reward_mean"]) for row in delta["data"]["groups"]] == [("ready", 0.5)]
        assert "events" not in delta["data"]
        assert await tick(feeder) == 0
    feeder.close()


async def test_a_row_that_is_committed_late_is_published_once(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    late = await database_sync_to_async(job_event)(job, "late")
    await Event.objects.filter(id=late.id).adelete()  # its id is given, and its transaction not committed yet
    await database_sync_to_async(job_event)(job, "early")
    feeder = await feeder_make()
    name = f"job:{show_id(IdKind.JOB, job.id)}"
    async with Browser(cast.owner.user) as browser:
        await browser.say(subscribe=[name])
        assert (await browser.hear())["kind"] == "snapshot"
        assert await tick(feeder) == 0
        await late.asave(force_insert=True)
        assert await tick(feeder) == 1
        assert [row["reason"] for row in (await browser.hear())["data"]["events"]] == ["late"]
        assert await tick(feeder) == 0
    feeder.close()


async def test_a_tick_without_news_reads_no_events_metrics_or_intervals(cast: Cast) -> None:
    await database_sync_to_async(cast.job)()
    feeder = await feeder_make()

    def ticked() -> list[str]:
        with CaptureQueriesContext(connections["default"]) as queries:
            feeder.tick()
        return [query["sql"] for query in queries if "common_event" in query["sql"]]

    await database_sync_to_async(ticked)()
    assert len(await database_sync_to_async(ticked)()) == 1
    feeder.close()


def job_event(job: Job, reason: str) -> Event:
    return event_record(
        kind="job.state", subject_type=SubjectType.JOB, subject_id=job.id, job_id=job.id,
        project_id=job.project_id, to_state="queued", reason=reason, author="scheduler",
    )  # fmt: skip


def group_event(job: Job) -> None:
    event_record(
        kind="group.state", subject_type=SubjectType.JOB, subject_id=job.id, job_id=job.id,
        project_id=job.project_id, to_state="open", reason="test", author="gateway",
    )  # fmt: skip


class _Deaf:
    def watched(self) -> dict[UUID, int]:
        return {}

    def publish(self, deltas: object) -> None:
        raise redis.ConnectionError("away")


async def test_a_mailbox_that_overflows_asks_for_a_snapshot() -> None:
    mailbox = Mailbox()
    for seq in range(MAX_QUEUED_BATCHES + 1):
        mailbox.put([Frame(topic="machines", epoch="e", seq=seq, kind=FrameKind.DELTA, at=0, data={})])
    assert mailbox.is_stale
    assert await mailbox.get() == ()


async def test_pages_are_told_of_a_job_that_was_deleted(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    await Job.objects.filter(id=job.id).aupdate(state="cancelled", ended_at=timezone.now())
    shown = show_id(IdKind.JOB, job.id)
    feeder = await feeder_make()
    async with Browser() as browser:
        await browser.say(token=cast.owner.secret, subscribe=["jobs", f"job:{shown}"])
        assert {(await browser.hear())["kind"] for _ in range(2)} == {"snapshot"}
        await database_sync_to_async(deletion_ask)(cast.owner, shown)
        await tick(feeder)
        told = [await browser.hear() for _ in range(2)]
    feeder.close()
    assert {frame["topic"].partition(":")[0] for frame in told} == {"jobs", "job"}
    assert [frame["data"]["deleted"] for frame in told] == [[shown]] * 2


def deletion_ask(person: Person, job_id: str) -> None:
    body = {"items": [{"kind": "job", "id": job_id}], "reason": "a mistake"}
    answer = person.call("POST", "storage/deletions", body)
    assert answer.status_code == 200, answer.content
