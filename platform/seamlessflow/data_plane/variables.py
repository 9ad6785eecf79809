"""The gateway's variables: what each means, accepts and defaults to."""

from seamlessflow.core.protocol.live_events import redis_url
from seamlessflow.runtime.plane_variables import ARTIFACT_ROOT, MAX_CONNECTIONS, MODE, SECRET_KEY, WATCHDOG_S
from seamlessflow.runtime.variables import Variable, http_url, whole_number

ACCEPTED_DATABASE = "postgresql://user[:password]@host[:port]/name"
ACCEPTED_EVENTS = "redis://…, rediss://… or unix://…"


def _database_url(value: str) -> str:
    if not value.startswith(("postgres://", "postgresql://")):
        raise ValueError
    return value


def _events_url(value: str) -> str:
    if not redis_url(value).startswith(("redis://", "rediss://", "unix://")):
        raise ValueError
    return value


DATABASE_URL = Variable(
    "DATABASE_URL",
    "the database, with the gateway's own role",
    ACCEPTED_DATABASE,
    _database_url,
    is_secret=True,
)
GATEWAY_URL = http_url(
    "SEAMLESSFLOW_GATEWAY_URL", "the base URL that agents are given", default_note="its host and port"
)
GATEWAY_PEER_URL = http_url(
    "SEAMLESSFLOW_GATEWAY_PEER_URL",
    "the base URL at which the other gateways reach this one",
    default_note="its host and port",
)
EVENTS_URL = Variable(
    "EVENTS_URL",
    "carries live events; without it, or a `BROKER_URL` of this kind, growing answers are not shown",
    ACCEPTED_EVENTS,
    _events_url,
    default_note="`BROKER_URL`",
)
TREE_MEMORY_MB = whole_number(
    "SEAMLESSFLOW_TREE_MEMORY_MB",
    "memory for the trees of sessions; beyond that, sessions that are idle longest are dropped and read back with "
    "their next request",
    default=1024,
    minimum=1,
)
RENDER_HELPERS = whole_number(
    "SEAMLESSFLOW_RENDER_HELPERS",
    "processes that render chat templates and tokenise; they are started when needed",
    default=2,
    minimum=1,
)
SESSION_ANSWERS = whole_number(
    "SEAMLESSFLOW_SESSION_ANSWERS",
    "answers that a session may have sampled at the same time: a request has one, or as many as its `n`. Beyond that "
    "it is refused with 429 `too_many_answers`",
    default=64,
    minimum=1,
)
SESSION_TOKENS = whole_number(
    "SEAMLESSFLOW_SESSION_TOKENS",
    "tokens that may be sampled in a session. An answer ends there, and the next turn is refused with 429 "
    "`session_tokens_reached`",
    default=10_000_000,
    minimum=1,
)
ENGINE_WAIT_S = whole_number(
    "SEAMLESSFLOW_ENGINE_WAIT_S",
    "how long a whole answer of an agent outside the platform may wait for an engine: less than the 600 seconds after "
    "which clients give up without a word. Then it is refused with 503 `no_engine`, the reason and `Retry-After`. "
    "Streams, and agents of the platform's own runners, wait as long as it takes",
    default=540,
    minimum=1,
)
VARIABLES = (
    MODE, SECRET_KEY, GATEWAY_URL, GATEWAY_PEER_URL, DATABASE_URL, EVENTS_URL, ARTIFACT_ROOT, TREE_MEMORY_MB,
    RENDER_HELPERS, SESSION_ANSWERS, SESSION_TOKENS, ENGINE_WAIT_S, MAX_CONNECTIONS, WATCHDOG_S,
)  # fmt: skip
