"""One hub per web process: a single subscription at the broker, and a bounded mailbox per socket.

Frames that come within GATHER_S of one another go to a socket together, because a message costs more than its content.
If a mailbox overflows or the subscription breaks, its frames are dropped and fresh snapshots follow. So a slow browser
costs this process no memory and never sees a gap. A hub lives while its process has sockets; as long, it renews the
lease that makes the feeder compare often.
"""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Sequence

import redis.asyncio
from channels.db import database_sync_to_async
from redis.exceptions import RedisError

from seamlessflow.control_plane.live.access import topic_snapshot
from seamlessflow.control_plane.live.broker import (
    audience_attend,
    group_ask,
    groups_watch,
    position_read,
    published_decode,
    reader_make,
)
from seamlessflow.control_plane.live.frames import Frame, Position
from seamlessflow.control_plane.live.guard import Guard
from seamlessflow.control_plane.live.sharing import SharedSnapshots
from seamlessflow.core.protocol.live_events import (
    AUDIENCE_TTL_S,
    CHANNEL,
    WATCH_TTL_S,
    TopicKind,
)
from seamlessflow.core.protocol.live_rows import FrameKind
from seamlessflow.runtime.tasks import task_supervised

MAX_QUEUED_BATCHES = 64
GATHER_S = 0.05
WATCH_EVERY_S = min(WATCH_TTL_S, AUDIENCE_TTL_S) / 3
GROUP_PREFIX = f"{TopicKind.GROUP}:"
BACKOFF_S = (0.2, 0.5, 1.0, 2.0)
_log = logging.getLogger(__name__)


class Mailbox:
    """Batches of frames for one socket. `is_stale`: some were lost, so snapshots are due. `is_behind`: the broker is
    away.
    """

    def __init__(self) -> None:
        self._frames: asyncio.Queue[Sequence[Frame]] = asyncio.Queue(MAX_QUEUED_BATCHES)
        self.is_stale = False
        self.is_behind = False

    def put(self, frames: Sequence[Frame]) -> None:
        if self.is_stale:
            return
        try:
            self._frames.put_nowait(frames)
        except asyncio.QueueFull:
            self.lose()

    def lose(self) -> None:
        """Drop the queued frames and wake the reader, which then asks for snapshots."""
        self.is_stale = True
        self.wake()

    def wake(self) -> None:
        while self.is_stale and not self._frames.empty():
            self._frames.get_nowait()
        if not self._frames.full():
            self._frames.put_nowait(())

    async def get(self) -> Sequence[Frame]:
        """Return the next frames; none if only the flags changed."""
        return await self._frames.get()


class Hub:
    """Distributes frames to sockets while there are any. `reader` reads positions and replays; `snapshots` serves
    subscribers.
    """

    def __init__(self) -> None:
        self.reader: redis.asyncio.Redis = reader_make()
        self.snapshots = SharedSnapshots(self._snapshot)
        self.guard = Guard()
        self._mailboxes: dict[str, set[Mailbox]] = defaultdict(set)
        self._all: set[Mailbox] = set()
        self._gathered: list[Frame] = []
        self._is_behind = False
        self._epoch: bytes | None = None  # when the lease was last renewed
        self._is_subscribed = asyncio.Event()
        self._tasks = (
            task_supervised(self._run(), name="live-hub"),
            task_supervised(self._keep_watching(), name="live-watch"),
            task_supervised(self.guard.run(), name="live-guard"),
        )

    def join(self, mailbox: Mailbox) -> None:
        self._all.add(mailbox)
        if self._is_behind:
            mailbox.is_behind = True
            mailbox.wake()

    def leave(self, mailbox: Mailbox) -> bool:
        """Remove a mailbox; return whether none is left."""
        self._all.discard(mailbox)
        for topic in list(self._mailboxes):
            self.unsubscribe(mailbox, topic)
        return not self._all

    async def subscribe(self, mailbox: Mailbox, topic: str) -> None:
        """Let deltas of the topic reach the mailbox from now on. Returns at once if the broker is away."""
        self._mailboxes[topic].add(mailbox)
        if not self._is_behind:
            await self._is_subscribed.wait()
        if topic.startswith(GROUP_PREFIX):
            await self._watch([topic])

    def unsubscribe(self, mailbox: Mailbox, topic: str) -> None:
        mailboxes = self._mailboxes.get(topic, set())
        mailboxes.discard(mailbox)
        if not mailboxes:
            self._mailboxes.pop(topic, None)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.snapshots.close()
        await self.reader.aclose()

    async def _snapshot(self, topic: str) -> Frame:
        """Read the number before the rows: a change in between is in both, and a delta may be applied twice."""
        try:
            position = await position_read(self.reader, topic)
        except (RedisError, OSError):  # `_run` reports it; once the broker is back, new snapshots are due
            position = Position()
        frame: Frame = await database_sync_to_async(_snapshot_frame)(topic, position)
        if topic.startswith(GROUP_PREFIX):
            # It lacks answers that are still growing, so gateways are asked to send them.
            with contextlib.suppress(RedisError, OSError):
                await group_ask(self.reader, topic.removeprefix(GROUP_PREFIX))
        return frame

    async def _run(self) -> None:
        num_failures = 0
        while True:
            try:
                async with self.reader.pubsub() as subscription:
                    await subscription.subscribe(CHANNEL)
                    async for message in subscription.listen():
                        if message["type"] == "subscribe":
                            num_failures = 0
                            await self._attend()  # before any snapshot: see `Feeder.skip`
                            self._set_behind(False)
                        elif message["type"] == "message":
                            self._deliver(published_decode(message["data"]))
            except (RedisError, OSError) as error:
                self._set_behind(True, str(error))
                num_failures += 1
                await asyncio.sleep(BACKOFF_S[min(num_failures, len(BACKOFF_S)) - 1])

    async def _keep_watching(self) -> None:
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            with contextlib.suppress(RedisError, OSError):  # `_run` reports that the broker is away
                await self._attend()
            await self._watch([topic for topic, mailboxes in self._mailboxes.items() if mailboxes])

    async def _attend(self) -> None:
        """Renew the lease. If it had expired, because this process stood still, sockets get fresh snapshots."""
        epoch, before = await audience_attend(self.reader), self._epoch
        self._epoch = epoch
        if before not in (None, epoch):
            for mailbox in self._all:
                mailbox.lose()

    async def _watch(self, topics: list[str]) -> None:
        groups = [topic.removeprefix(GROUP_PREFIX) for topic in topics if topic.startswith(GROUP_PREFIX)]
        if groups:
            with contextlib.suppress(RedisError, OSError):  # `_run` reports that the broker is away
                await groups_watch(self.reader, groups)

    def _deliver(self, frame: Frame) -> None:
        if not self._mailboxes.get(frame.topic):
            return
        if not self._gathered:
            asyncio.get_running_loop().call_later(GATHER_S, self._hand_out)
        self._gathered.append(frame)

    def _hand_out(self) -> None:
        frames, self._gathered = self._gathered, []
        batches: dict[Mailbox, list[Frame]] = defaultdict(list)
        for frame in frames:
            for mailbox in self._mailboxes.get(frame.topic, ()):
                batches[mailbox].append(frame)
        for mailbox, batch in batches.items():
            mailbox.put(batch)

    def _set_behind(self, is_behind: bool, cause: str = "") -> None:
        self._is_subscribed.set()
        if is_behind == self._is_behind:
            return
        self._is_behind = is_behind
        _log.warning("the events broker is %s", f"away: {cause}" if is_behind else "back")
        for mailbox in self._all:
            mailbox.is_behind = is_behind
            # After an outage frames may be missing, so snapshots are sent.
            if is_behind:
                mailbox.wake()
            else:
                mailbox.lose()


def _snapshot_frame(topic: str, position: Position) -> Frame:
    frame = Frame(
        topic=topic,
        epoch=position.epoch,
        seq=position.seq,
        kind=FrameKind.SNAPSHOT,
        at=time.time_ns() // 1_000_000,
        data=topic_snapshot(topic),
    )
    frame.text  # noqa: B018 - encoded here, in a thread, not in the event loop
    return frame


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


def hub_get() -> Hub:
    """Return the hub of this event loop (a process has one; each test has its own)."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]


async def hub_leave(mailbox: Mailbox) -> None:
    """Remove a mailbox; the last one to leave closes the hub."""
    loop = asyncio.get_running_loop()
    hub = _hubs.get(loop)
    if hub is not None and hub.leave(mailbox):
        del _hubs[loop]
        await hub.close()
