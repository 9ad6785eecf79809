"""Settings of the gateway process, from the environment. Faults are named at start, all at once."""

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

EVENTS_SCHEMES = ("redis://", "rediss://", "unix://")
MIN_SECRET_CHARS = 16


@dataclass(frozen=True, slots=True)
class Settings:
    database_url: str
    secret_key: str  # verifies phase credentials, makes front tokens
    public_url: str  # what clients are told as base URL
    events_url: str = ""  # broker of live events, as redis-py takes it; none: growing answers are not shown
    max_body_bytes: int = 32 << 20
    max_live_sessions: int = 20_000  # kept in memory; others are read back when they speak
    max_held_turns: int = 4096  # turns waiting for an engine
    retry_window_s: float = 60.0  # how long the partial turn of a vanished client is kept
    keepalive_s: float = 15.0  # between comments on a silent stream
    group_lease_s: float = 120.0


class InvalidSettings(ValueError):
    """The environment lacks something or holds something unusable."""


def settings_read(environ: Mapping[str, str], *, host: str, port: int) -> Settings:
    """Raises InvalidSettings with one sentence per fault."""
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
    window = environ.get("SEAMLESSFLOW_RETRY_WINDOW_S", "60")
    if not window.isdecimal():
        faults.append(f"SEAMLESSFLOW_RETRY_WINDOW_S must be a whole number of seconds, got {window!r}")
    faults += _exposure_faults(environ.get(MODE_VARIABLE) or Mode.LOCAL, host=host, secret=secret)
    events_url = redis_url(environ.get("EVENTS_URL") or environ.get("BROKER_URL", ""))
    if not events_url.startswith(EVENTS_SCHEMES):
        if environ.get("EVENTS_URL"):
            scheme = events_url.partition(":")[0]
            faults.append(f"EVENTS_URL must be a redis://, rediss:// or unix:// address, got {scheme!r}")
        events_url = ""  # a broker of another kind carries doorbells, not live events
    if faults:
        raise InvalidSettings("; ".join(faults) + ".")
    public_url = environ.get("SEAMLESSFLOW_GATEWAY_URL", f"http://{host}:{port}").rstrip("/")
    return Settings(
        database_url=url,
        secret_key=secret,
        public_url=public_url,
        events_url=events_url,
        retry_window_s=float(window),
    )


def _exposure_faults(mode: str, *, host: str, secret: str) -> list[str]:
    if mode not in tuple(Mode):
        return [f"{MODE_VARIABLE} must be {' or '.join(Mode)}, got {mode!r}"]
    refusal = binding_refusal(host, mode=Mode(mode))
    weakness = secret_weakness(secret) if mode == Mode.PRODUCTION else None
    return [
        *([refusal] if refusal else []),
        *([f"SEAMLESSFLOW_SECRET_KEY is {weakness}; accepted: {SECRET_ACCEPTED}"] if weakness else []),
    ]
