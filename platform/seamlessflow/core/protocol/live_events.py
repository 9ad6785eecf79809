"""How the planes use the common events broker: how deltas are numbered, and which forests are being watched.

All writers of a topic use one numbering: `APPEND` numbers a delta, stores it in a capped stream and publishes it in
one step. Web processes note the groups that sockets look at (`WATCH`, repeated within WATCH_TTL_S); gateways and the
feeder read the list (`WATCHED`) and report only on those groups. `ASK` counts snapshots: when the count of a group
rises, a watcher lacks the beginning of its growing answers, and gateways repeat it from the first token. Groups are
named by their shown ids. While a web process has sockets, it renews the lease on the audience (`ATTEND`); the feeder
learns of an audience that begins, and publishes nothing while no watcher has the lease. Invariant: nothing here is a
record; a snapshot makes up for whatever is lost.
"""

from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import UUID

import msgspec

from seamlessflow.core.types.ids import IdKind, parse_id, show_id

CHANNEL = "seamlessflow:live"
EPOCH_KEY = "seamlessflow:live:epoch"
WATCHED_KEY = "seamlessflow:live:watched"  # sorted set: group → expiry in seconds of the broker's clock
ASKED_KEY = "seamlessflow:live:asked"  # hash: group → number of snapshots given
WATCH_TTL_S = 15
ASKED_TTL_S = 3600
AUDIENCE_KEY = "seamlessflow:live:audience"  # exists while some web process has sockets
AUDIENCE_CHANNEL = "seamlessflow:live:audience-begins"
AUDIENCE_TTL_S = 15  # renewed every 5 s; if the web process dies, the feeder rests after this time

# KEYS: epoch, number, stream. ARGV: epoch if there is none, longest stream, at, data, stream's life, channel, topic.
APPEND = """
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
# KEYS: watched. ARGV: seconds to live, then groups.
WATCH = """
local now = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), ARGV[i]) end
redis.call('EXPIRE', KEYS[1], ARGV[1])
"""
# KEYS: asked. ARGV: seconds to live, group.
ASK = """
redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('EXPIRE', KEYS[1], ARGV[1])
"""
# KEYS: audience, epoch. ARGV: seconds to live, channel. Says so on the channel if there was no audience before.
# Returns the epoch: another one than at the last renewal shows that the lease had expired meanwhile.
ATTEND = """
if redis.call('SET', KEYS[1], 1, 'NX', 'EX', ARGV[1]) then
  redis.call('PUBLISH', ARGV[2], '')
else
  redis.call('EXPIRE', KEYS[1], ARGV[1])
end
return redis.call('GET', KEYS[2]) or ''
"""
# KEYS: watched, asked. Returns group, count, group, count, …
WATCHED = """
local groups = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. redis.call('TIME')[1], '+inf')
local answer = {}
for i, group in ipairs(groups) do
  answer[2 * i - 1] = group
  answer[2 * i] = redis.call('HGET', KEYS[2], group) or '0'
end
return answer
"""


class TopicKind(StrEnum):
    """First word of a topic. The second is an identifier."""

    JOBS = "jobs"
    JOB = "job"
    GROUP = "group"


class StreamLimits(msgspec.Struct, frozen=True):
    """How much of a topic is kept for clients that reconnect."""

    num_deltas: int
    life_s: int


JOB_STREAM = StreamLimits(num_deltas=1000, life_s=24 * 3600)
# Growing answers are large and a snapshot of a forest is cheap, so little is kept.
GROUP_STREAM = StreamLimits(num_deltas=300, life_s=300)


def group_topic(group_id: UUID) -> str:
    return f"{TopicKind.GROUP}:{show_id(IdKind.GROUP, group_id)}"


def seq_key(topic: str) -> str:
    return f"seamlessflow:live:seq:{topic}"


def stream_key(topic: str) -> str:
    return f"seamlessflow:live:stream:{topic}"


def append_keys(topic: str) -> list[str]:
    return [EPOCH_KEY, seq_key(topic), stream_key(topic)]


def append_arguments(
    *, epoch: str, limits: StreamLimits, at: int, data: bytes, topic: str
) -> list[str | int | bytes]:
    """Return the arguments of `APPEND`. `epoch` is used if the broker has none yet; `at` is in epoch milliseconds;
    `data` is a JSON object."""
    return [epoch, limits.num_deltas, at, data, limits.life_s, CHANNEL, topic]


def watched_decode(answer: list[bytes]) -> dict[UUID, int]:
    """Return the watched groups, each with the number of snapshots given."""
    return {
        parse_id(IdKind.GROUP, group.decode()): int(count)
        for group, count in zip(answer[::2], answer[1::2], strict=True)
    }


def redis_url(broker_url: str) -> str:
    """Convert to redis-py's form: Celery writes sockets `redis+socket://…?virtual_host=n`, redis-py `unix://…?db=n`."""
    split = urlsplit(broker_url)
    if split.scheme != "redis+socket":
        return broker_url
    query = {"db" if key == "virtual_host" else key: value for key, value in parse_qsl(split.query)}
    return f"unix://{split.path}" + (f"?{urlencode(query)}" if query else "")


class GrowingPrompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The request that an answer belongs to; it is not recorded yet."""

    kind: str  # root or prompt
    num_tokens: int
    messages: list[dict[str, Any]]
    prompt: int = 0  # for a root: the first four bytes of its prompt's identifier, equal for the same root


class GrowingAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one answer gained since the last report. Applying it twice changes nothing, because `start` is absolute."""

    session: str  # ses_…
    turn: str
    choice: int
    start: int  # position of the first token sent here
    parent: int | None = None  # the parent of the turn's prompt; None if the prompt begins a tree
    prompt_index: int | None = None  # the prompt's node, if it is already recorded
    prompt: GrowingPrompt | None = None  # only if `start` is 0
    token_ids: bytes = b""  # int32, little-endian; base64 in JSON
    logprobs: bytes = b""  # float16, one per token
    spans: list[int] = []  # of the whole answer: start, version, start, version, …
    handover_at: list[int] = []  # of the whole answer: tokens it had when it changed engines
    is_over: bool = False  # nothing more will come
    is_recorded: bool = False  # its nodes are durable
