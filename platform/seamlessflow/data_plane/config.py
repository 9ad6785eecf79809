"""Reads the gateway's settings from the environment and reports all faults at once, at start."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from seamlessflow.core.protocol.exposure import (
    MODE_VARIABLE,
    SECRET_ACCEPTED,
    Mode,
    binding_refusal,
    secret_weakness,
)
from seamlessflow.core.protocol.live_events import redis_url
from seamlessflow.runtime.artifacts.opening import InvalidRoot, root_url
from seamlessflow.runtime.watchdog import DEFAULT_LIMIT_S, LIMIT_VARIABLE

EVENTS_SCHEMES = ("redis://", "rediss://", "unix://")
WILDCARD_HOSTS = ("0.0.0.0", "::")  # noqa: S104 - recognised, not bound
MIN_SECRET_CHARS = 16
MAX_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Settings:
    database_url: str
    secret_key: str  # verifies phase credentials, makes front tokens
    public_url: str  # the base URL that clients are given
    peer_url: str = ""  # the base URL at which other gateways reach this one; empty: the public one
    artifact_root: str = ""  # URL of the artifact store; needed if that is no folder of this host
    events_url: str = ""  # broker of live events, as redis-py takes it; empty: growing answers are not shown
    max_body_bytes: int = 32 << 20
    max_inflight_body_bytes: int = 256 << 20  # of all requests that have not become turns yet
    max_connections: int = 4096
    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0  # plus one second per 16 KiB
    num_render_helpers: int = 2  # processes that render and tokenise
    render_timeout_s: float = 10.0  # processor time for one request
    render_memory_mb: int = 1024
    watchdog_s: float = DEFAULT_LIMIT_S  # how long the event loop may be blocked; 0: no limit
    drain_timeout_s: float = 30.0  # a client that reads nothing of its answer for this long is disconnected
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
    url, secret = environ.get("DATABASE_URL", ""), environ.get("SEAMLESSFLOW_SECRET_KEY", "")
    faults = []
    if not url.startswith(("postgres://", "postgresql://")):
        faults.append(
            f"DATABASE_URL must be a postgresql:// address, got {url.partition(':')[0] or 'nothing'!r}"
        )
    if len(secret) < MIN_SECRET_CHARS:
        faults.append(
            f"SEAMLESSFLOW_SECRET_KEY must have at least {MIN_SECRET_CHARS} characters, got {len(secret)}"
        )
    numbers = _Numbers(environ, faults)
    window = numbers.read("SEAMLESSFLOW_RETRY_WINDOW_S", 60, minimum=0)
    engine_wait_s = numbers.read("SEAMLESSFLOW_ENGINE_WAIT_S", 540)
    body_memory_mb = numbers.read("SEAMLESSFLOW_BODY_MEMORY_MB", 256)
    max_connections = numbers.read("SEAMLESSFLOW_MAX_CONNECTIONS", 4096)
    head_s = numbers.read("SEAMLESSFLOW_HEAD_TIMEOUT_S", 10)
    body_s = numbers.read("SEAMLESSFLOW_BODY_TIMEOUT_S", 30)
    drain_s = numbers.read("SEAMLESSFLOW_DRAIN_TIMEOUT_S", 30)
    num_render_helpers = numbers.read("SEAMLESSFLOW_RENDER_HELPERS", 2)
    render_s = numbers.read("SEAMLESSFLOW_RENDER_TIMEOUT_S", 10)
    render_memory_mb = numbers.read("SEAMLESSFLOW_RENDER_MEMORY_MB", 1024)
    tree_memory_mb = numbers.read("SEAMLESSFLOW_TREE_MEMORY_MB", 1024)
    session_answers = numbers.read("SEAMLESSFLOW_SESSION_ANSWERS", 64)
    session_tokens = numbers.read("SEAMLESSFLOW_SESSION_TOKENS", 10_000_000)
    watchdog_s = numbers.read(LIMIT_VARIABLE, DEFAULT_LIMIT_S, minimum=0)
    faults += _exposure_faults(environ.get(MODE_VARIABLE) or Mode.LOCAL, host=host, secret=secret)
    events_url = redis_url(environ.get("EVENTS_URL") or environ.get("BROKER_URL", ""))
    if not events_url.startswith(EVENTS_SCHEMES):
        if environ.get("EVENTS_URL"):
            scheme = events_url.partition(":")[0]
            faults.append(f"EVENTS_URL must be a redis://, rediss:// or unix:// address, got {scheme!r}")
        events_url = ""  # a broker of another kind carries only doorbells
    artifact_root = environ.get("ARTIFACT_ROOT", "")
    try:
        artifact_root = root_url(artifact_root) if artifact_root else ""
    except InvalidRoot as error:
        faults.append(str(error))
    if faults:
        raise InvalidSettings("; ".join(faults) + ".")
    public_url = environ.get("SEAMLESSFLOW_GATEWAY_URL", f"http://{host}:{port}").rstrip("/")
    return Settings(
        database_url=url,
        secret_key=secret,
        public_url=public_url,
        peer_url=environ.get("SEAMLESSFLOW_GATEWAY_PEER_URL", f"http://{_reachable(host)}:{port}").rstrip(
            "/"
        ),
        max_tree_bytes=tree_memory_mb << 20,
        max_session_answers=session_answers,
        max_session_tokens=session_tokens,
        artifact_root=artifact_root,
        events_url=events_url,
        retry_window_s=float(window),
        engine_wait_s=float(engine_wait_s),
        max_inflight_body_bytes=body_memory_mb << 20,
        max_connections=max_connections,
        head_timeout_s=float(head_s),
        body_timeout_s=float(body_s),
        drain_timeout_s=float(drain_s),
        watchdog_s=float(watchdog_s),
        num_render_helpers=num_render_helpers,
        render_timeout_s=float(render_s),
        render_memory_mb=render_memory_mb,
    )


def _reachable(host: str) -> str:
    """Return this host's name if the gateway listens on all of its addresses."""
    return socket.gethostname() if host in WILDCARD_HOSTS else host


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Reads whole numbers and collects a fault for every other value."""

    environ: Mapping[str, str]
    faults: list[str]

    def read(self, name: str, default: int, *, minimum: int = 1) -> int:
        text = self.environ.get(name) or str(default)
        if text.isdecimal() and len(text) < MAX_DIGITS and int(text) >= minimum:
            return int(text)
        self.faults.append(f"{name} must be a whole number of at least {minimum}, got {text!r}")
        return default


def _exposure_faults(mode: str, *, host: str, secret: str) -> list[str]:
    if mode not in tuple(Mode):
        return [f"{MODE_VARIABLE} must be one of {', '.join(Mode)}, got {mode!r}"]
    refusal = binding_refusal(host, mode=Mode(mode))
    weakness = secret_weakness(secret) if mode != Mode.LOCAL else None
    return [
        *([refusal] if refusal else []),
        *([f"SEAMLESSFLOW_SECRET_KEY is {weakness}; accepted: {SECRET_ACCEPTED}"] if weakness else []),
    ]
