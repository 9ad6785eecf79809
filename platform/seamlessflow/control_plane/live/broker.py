"""The events broker: one capped stream per topic, numbered once for all replicas, and one channel that carries all.

A Lua script numbers, stores and publishes a delta in one step; the stream's entry id is `<seq>-0`.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
import redis
import redis.asyncio
from django.conf import settings

from seamlessflow.control_plane.live.frames import Frame, FrameKind, Position

CHANNEL = "seamlessflow:live"
EPOCH_KEY = "seamlessflow:live:epoch"
MAX_STREAM_LENGTH = 1000
STREAM_TTL_S = 24 * 3600
MAX_REPLAY = 500
TIMEOUT_S = 2.0

_APPEND = """
local epoch = redis.call('GET', KEYS[1])
if not epoch then
  epoch = ARGV[1]
  redis.call('SET', KEYS[1], epoch)
end
local seq = redis.call('INCR', KEYS[2])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[2], seq .. '-0', 'epoch', epoch, 'at', ARGV[3], 'data', ARGV[4])
redis.call('EXPIRE', KEYS[3], ARGV[5])
redis.call('PUBLISH', ARGV[6], cjson.encode({ARGV[7], epoch, seq, ARGV[3]}) .. '\\n' .. ARGV[4])
return seq
"""


class Delta(msgspec.Struct, frozen=True):
    """What the feeder wants to say on one topic."""

    topic: str
    at: int
    data: dict[str, Any]


class Publisher:
    """The feeder's side, synchronous. Raises redis.RedisError while the broker is away."""

    def __init__(self) -> None:
        self._redis = redis.Redis.from_url(
            settings.EVENTS_URL, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
        )
        self._append = self._redis.register_script(_APPEND)
        self._epoch = secrets.token_hex(8)  # used if the broker has none yet

    def publish(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            keys = [EPOCH_KEY, _seq_key(delta.topic), _stream_key(delta.topic)]
            data = msgspec.json.encode(delta.data)
            limits = (MAX_STREAM_LENGTH, delta.at, data, STREAM_TTL_S)
            self._append(keys=keys, args=[self._epoch, *limits, CHANNEL, delta.topic])

    def close(self) -> None:
        self._redis.close()


def reader_make() -> redis.asyncio.Redis:
    """The web process's side. No time-out: a subscription may be silent for hours."""
    return redis.asyncio.Redis.from_url(
        settings.EVENTS_URL, socket_timeout=None, socket_connect_timeout=TIMEOUT_S
    )


def published_decode(raw: bytes) -> Frame:
    """Invert what the script publishes."""
    head, _, data = raw.partition(b"\n")
    topic, epoch, seq, at = msgspec.json.decode(head, type=tuple[str, str, int, str])
    return Frame(
        topic=topic, epoch=epoch, seq=seq, kind=FrameKind.DELTA, at=int(at), data=msgspec.json.decode(data)
    )


async def position_read(reader: redis.asyncio.Redis, topic: str) -> Position:
    epoch, seq = await reader.mget(EPOCH_KEY, _seq_key(topic))
    return Position((epoch or b"").decode(), int(seq or 0))


async def deltas_since(reader: redis.asyncio.Redis, topic: str, since: Position) -> list[Frame] | None:
    """The deltas after `since`, or None where some of them are gone or too many: a snapshot is due."""
    now = await position_read(reader, topic)
    if since.epoch != now.epoch or since.seq > now.seq or now.seq - since.seq > MAX_REPLAY:
        return None
    entries = await reader.xrange(_stream_key(topic), min=f"{since.seq + 1}-0")
    frames = [
        Frame(
            topic=topic,
            epoch=fields[b"epoch"].decode(),
            seq=int(entry.partition(b"-")[0]),
            kind=FrameKind.DELTA,
            at=int(fields[b"at"]),
            data=msgspec.json.decode(fields[b"data"]),
        )
        for entry, fields in entries
    ]
    is_whole = [frame.seq for frame in frames] == list(range(since.seq + 1, since.seq + 1 + len(frames)))
    return frames if is_whole and since.seq + len(frames) >= now.seq else None


def _seq_key(topic: str) -> str:
    return f"seamlessflow:live:seq:{topic}"


def _stream_key(topic: str) -> str:
    return f"seamlessflow:live:stream:{topic}"
