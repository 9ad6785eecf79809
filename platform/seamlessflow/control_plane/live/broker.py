"""The events broker: one capped stream per topic, numbered once for all replicas, and one channel that carries all.

The scripts and keys are `core.protocol.live_events`; the stream's entry id is `<seq>-0`.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import msgspec
import redis
import redis.asyncio
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from seamlessflow.control_plane.live.frames import Frame, Position
from seamlessflow.core.protocol.live_events import (
    APPEND,
    ASK,
    ASKED_KEY,
    ASKED_TTL_S,
    ATTEND,
    AUDIENCE_CHANNEL,
    AUDIENCE_KEY,
    AUDIENCE_TTL_S,
    EPOCH_KEY,
    GROUP_STREAM,
    JOB_STREAM,
    WATCH,
    WATCH_TTL_S,
    WATCHED,
    WATCHED_KEY,
    TopicKind,
    append_arguments,
    append_keys,
    seq_key,
    stream_key,
    watched_decode,
)
from seamlessflow.core.protocol.live_rows import FrameKind

MAX_REPLAY = 500
TIMEOUT_S = 2.0


class Delta(msgspec.Struct, frozen=True):
    """A delta that the feeder wants to publish on one topic."""

    topic: str
    at: int
    data: dict[str, Any]


class Publisher:
    """Publishes deltas for the feeder, synchronously. Raises redis.RedisError while the broker is away."""

    def __init__(self) -> None:
        self._redis = redis.Redis.from_url(
            settings.EVENTS_URL, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
        )
        self._append = self._redis.register_script(APPEND)
        self._watched = self._redis.register_script(WATCHED)
        self._epoch = secrets.token_hex(8)  # used if the broker has none yet

    def publish(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            is_group = delta.topic.startswith(f"{TopicKind.GROUP}:")
            arguments = append_arguments(
                epoch=self._epoch,
                limits=GROUP_STREAM if is_group else JOB_STREAM,
                at=delta.at,
                data=msgspec.json.encode(delta.data),
                topic=delta.topic,
            )
            self._append(keys=append_keys(delta.topic), args=arguments)

    def watched(self) -> dict[UUID, int]:
        """Return the groups whose forests are being watched."""
        return watched_decode(self._watched(keys=[WATCHED_KEY, ASKED_KEY]))

    def epoch_begin(self) -> None:
        """Begin another life of the numbering: who has read up to now cannot ask for what comes next."""
        self._epoch = secrets.token_hex(8)
        self._redis.set(EPOCH_KEY, self._epoch)

    def has_audience(self) -> bool:
        """Return whether some web process has sockets, or had some when it died, AUDIENCE_TTL_S ago at most."""
        return bool(self._redis.exists(AUDIENCE_KEY))

    def close(self) -> None:
        self._redis.close()


class Audience:
    """Waits for an audience to begin. Raises redis.RedisError while the broker is away.

    It listens from its making on, so a beginning between two waits ends the second one. A subscription that had to be
    renewed ends a wait too, because beginnings may have been missed.
    """

    def __init__(self) -> None:
        self._redis = redis.Redis.from_url(
            settings.EVENTS_URL, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
        )
        self._subscription = self._redis.pubsub()  # type: ignore[no-untyped-call]
        self._subscription.subscribe(AUDIENCE_CHANNEL)

    def wait(self, timeout_s: float) -> None:
        self._subscription.get_message(timeout=timeout_s)

    def close(self) -> None:
        self._subscription.close()
        self._redis.close()


def audience_knock() -> None:
    """End the wait of every `Audience` now. Raises redis.RedisError if the broker is away."""
    once = Retry(NoBackoff(), 0)
    with redis.Redis.from_url(
        settings.EVENTS_URL, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=once
    ) as client:
        client.publish(AUDIENCE_CHANNEL, "")


def reader_make() -> redis.asyncio.Redis:
    """Return the web process's client. It has no time-out, because a subscription may be silent for hours."""
    return redis.asyncio.Redis.from_url(
        settings.EVENTS_URL, socket_timeout=None, socket_connect_timeout=TIMEOUT_S
    )


def published_decode(raw: bytes) -> Frame:
    """Decode a frame that the script published. The data stay bytes, because they are passed on unchanged."""
    head, _, data = raw.partition(b"\n")
    topic, epoch, seq, at = msgspec.json.decode(head, type=tuple[str, str, int, str])
    return Frame(topic=topic, epoch=epoch, seq=seq, kind=FrameKind.DELTA, at=int(at), data=msgspec.Raw(data))


async def position_read(reader: redis.asyncio.Redis, topic: str) -> Position:
    epoch, seq = await reader.mget(EPOCH_KEY, seq_key(topic))
    return Position((epoch or b"").decode(), int(seq or 0))


async def deltas_since(reader: redis.asyncio.Redis, topic: str, since: Position) -> list[Frame] | None:
    """Return the deltas after `since`, or None if some are gone or there are too many; then a snapshot is due."""
    now = await position_read(reader, topic)
    if since.epoch != now.epoch or since.seq > now.seq or now.seq - since.seq > MAX_REPLAY:
        return None
    entries = await reader.xrange(stream_key(topic), min=f"{since.seq + 1}-0")
    frames = [
        Frame(
            topic=topic,
            epoch=fields[b"epoch"].decode(),
            seq=int(entry.partition(b"-")[0]),
            kind=FrameKind.DELTA,
            at=int(fields[b"at"]),
            data=msgspec.Raw(fields[b"data"]),
        )
        for entry, fields in entries
    ]
    is_whole = [frame.seq for frame in frames] == list(range(since.seq + 1, since.seq + 1 + len(frames)))
    return frames if is_whole and since.seq + len(frames) >= now.seq else None


async def groups_watch(reader: redis.asyncio.Redis, group_ids: Iterable[str]) -> None:
    """Note for WATCH_TTL_S that these groups are watched."""
    await reader.eval(WATCH, 1, WATCHED_KEY, WATCH_TTL_S, *group_ids)  # type: ignore[misc]


async def audience_attend(reader: redis.asyncio.Redis) -> bytes:
    """Note for AUDIENCE_TTL_S that this process has sockets; wake the feeder if no process had any.

    Returns the epoch. If it changed since the last call, deltas may be missing.
    """
    keys = (AUDIENCE_KEY, EPOCH_KEY)
    epoch: bytes = await reader.eval(ATTEND, len(keys), *keys, AUDIENCE_TTL_S, AUDIENCE_CHANNEL)  # type: ignore[misc]
    return epoch


async def group_ask(reader: redis.asyncio.Redis, group_id: str) -> None:
    """Have gateways repeat the group's growing answers so far, because a client's snapshot lacks them."""
    await reader.eval(ASK, 1, ASKED_KEY, ASKED_TTL_S, group_id)  # type: ignore[misc]
