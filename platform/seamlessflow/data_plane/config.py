"""Reads the gateway's settings from the environment and reports all faults at once, at start."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from seamlessflow.core.protocol.exposure import SECRET_ACCEPTED, Mode, binding_refusal, secret_weakness
from seamlessflow.core.protocol.live_events import redis_url
from seamlessflow.data_plane import variables
from seamlessflow.runtime import plane_variables
from seamlessflow.runtime.http.limits import (
    BODY_S,
    DRAIN_S,
    HEAD_S,
    MAX_GATEWAY_BODIES_BYTES,
    MAX_GATEWAY_BODY_BYTES,
)
from seamlessflow.runtime.variables import Reader
from seamlessflow.runtime.watchdog import DEFAULT_LIMIT_S

EVENTS_SCHEMES = ("redis://", "rediss://", "unix://")
WILDCARD_HOSTS = ("0.0.0.0", "::")  # noqa: S104 - recognised, not bound


@dataclass(frozen=True, slots=True)
class Settings:
    database_url: str
    secret_key: str  # verifies phase credentials, makes front tokens
    public_url: str  # the base URL that clients are given
    peer_url: str = ""  # the base URL at which other gateways reach this one; empty: the public one
    artifact_root: str = ""  # URL of the artifact store; needed if that is no folder of this host
    events_url: str = ""  # broker of live events, as redis-py takes it; empty: growing answers are not shown
    max_body_bytes: int = MAX_GATEWAY_BODY_BYTES
    max_inflight_body_bytes: int = MAX_GATEWAY_BODIES_BYTES  # of all requests that have not become turns yet
    max_connections: int = 4096
    head_timeout_s: float = HEAD_S
    body_timeout_s: float = BODY_S
    drain_timeout_s: float = DRAIN_S
    num_render_helpers: int = 2  # processes that render and tokenise
    render_timeout_s: float = 10.0  # processor time for one request
    render_memory_mb: int = 1024
    watchdog_s: float = DEFAULT_LIMIT_S  # how long the event loop may be blocked; 0: no limit
    max_live_sessions: int = 20_000  # kept in memory; others are read back with their next request
    max_tree_bytes: int = 1 << 30  # of these sessions
    max_held_turns: int = 4096  # turns waiting for an engine
    max_session_answers: int = 64  # of one session at the same time; a turn has one or, by its `n`, several
    max_session_tokens: int = 10_000_000  # sampled in one session
    retry_window_s: float = 60.0  # how long the partial turn of a disconnected client is kept
    keepalive_s: float = 15.0  # between comments on a silent stream
    # How long a whole answer of an agent outside the platform may wait for an engine: less than the 600 s after which
    # clients usually give up without a word.
    engine_wait_s: float = 540.0
    group_lease_s: float = 120.0


class InvalidSettings(ValueError):
    """An environment variable is missing or has an unusable value."""


def settings_read(environ: Mapping[str, str], *, host: str, port: int) -> Settings:
    """Read the settings. Raises InvalidSettings with one sentence per fault."""
    faults: list[str] = []
    reader = Reader(environ, faults)
    settings = Settings(
        database_url=reader.read(variables.DATABASE_URL),
        secret_key=reader.read(plane_variables.SECRET_KEY),
        public_url=reader.read(variables.GATEWAY_URL, default=_url(host, port)),
        peer_url=reader.read(variables.GATEWAY_PEER_URL, default=_url(_reachable(host), port)),
        max_connections=reader.read(plane_variables.MAX_CONNECTIONS),
        max_tree_bytes=reader.read(variables.TREE_MEMORY_MB) << 20,
        max_session_answers=reader.read(variables.SESSION_ANSWERS),
        max_session_tokens=reader.read(variables.SESSION_TOKENS),
        artifact_root=reader.read(plane_variables.ARTIFACT_ROOT)
        if reader.has(plane_variables.ARTIFACT_ROOT)
        else "",
        events_url=_events_url(reader),
        engine_wait_s=float(reader.read(variables.ENGINE_WAIT_S)),
        watchdog_s=float(reader.read(plane_variables.WATCHDOG_S)),
        num_render_helpers=reader.read(variables.RENDER_HELPERS),
    )
    mode = Mode(reader.read(plane_variables.MODE))
    if faults or (faults := _exposure_faults(mode, host=host, secret=settings.secret_key)):
        raise InvalidSettings("; ".join(faults) + ".")
    return settings


def _events_url(reader: Reader) -> str:
    """Return the broker of live events; "" if there is none: a broker of another kind carries only doorbells."""
    if reader.has(variables.EVENTS_URL):
        return redis_url(reader.read(variables.EVENTS_URL))
    url = redis_url(reader.environ.get("BROKER_URL", ""))
    return url if url.startswith(EVENTS_SCHEMES) else ""


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _reachable(host: str) -> str:
    """Return this host's name if the gateway listens on all of its addresses."""
    return socket.gethostname() if host in WILDCARD_HOSTS else host


def _exposure_faults(mode: Mode, *, host: str, secret: str) -> list[str]:
    refusal = binding_refusal(host, mode=mode)
    weakness = secret_weakness(secret) if mode is not Mode.LOCAL else None
    return [
        *([refusal] if refusal else []),
        *([f"SEAMLESSFLOW_SECRET_KEY is {weakness}; accepted: {SECRET_ACCEPTED}"] if weakness else []),
    ]
