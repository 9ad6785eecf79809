"""The control plane's variables: what each means, accepts and defaults to.

Read by `settings` and, before Django is set up, by `connections`. Invariant: it imports no model.
"""

from pathlib import Path
from urllib.parse import urlsplit

from seamlessflow.control_plane.common.database.address import ACCEPTED_DATABASE, database_address_parse
from seamlessflow.runtime.plane_variables import (
    ARTIFACT_ROOT,
    MAX_CONNECTIONS,
    MIN_SECRET_LENGTH,
    MODE,
    SECRET_KEY,
    WATCHDOG_S,
)
from seamlessflow.runtime.variables import Variable, http_url, items, one_of, secret, text, whole_number

ACCEPTED_BROKER = "redis://host:port/n, rediss://host:port/n or redis+socket:///path?virtual_host=n"
GIBIBYTE = 1024**3


def broker_url(name: str, help: str, *, default_note: str = "") -> Variable[str]:
    def parse(value: str) -> str:
        if urlsplit(value).scheme not in ("redis", "rediss", "redis+socket", "unix"):
            raise ValueError
        return value

    return Variable(name, help, ACCEPTED_BROKER, parse, default_note=default_note)


def folders(name: str, help: str) -> Variable[tuple[Path, ...]]:
    def parse(value: str) -> tuple[Path, ...]:
        paths = tuple(Path(part) for part in value.split(":") if part)
        if not all(path.is_absolute() for path in paths):
            raise ValueError
        return tuple(path.resolve() for path in paths)

    return Variable(name, help, "absolute folders joined by ':'", parse, "", "none")


DATABASE_URL = Variable(
    "DATABASE_URL", "the database of the planes", ACCEPTED_DATABASE, database_address_parse, is_secret=True
)
GATEWAY_DATABASE_URL = Variable(
    "GATEWAY_DATABASE_URL",
    "the gateway's own role, which the migrations create and grant; a gateway gets it as its `DATABASE_URL`",
    ACCEPTED_DATABASE,
    database_address_parse,
    default_note="no role is made",
    is_secret=True,
)
BROKER_URL = broker_url("BROKER_URL", "carries doorbells to machines, which read it too")
BACKGROUND_BROKER_URL = broker_url(
    "BACKGROUND_BROKER_URL",
    "carries background work; set it, because machines can read `BROKER_URL`",
    default_note="`BROKER_URL`",
)
EVENTS_URL = broker_url(
    "EVENTS_URL", "carries live events; set it, for the same reason", default_note="`BROKER_URL`"
)
WEB_URL = http_url(
    "SEAMLESSFLOW_WEB_URL",
    "the address that people open in a browser: https, or http://localhost for a trial",
    default="http://127.0.0.1:8000",
)
GATEWAY_URL = http_url(
    "SEAMLESSFLOW_GATEWAY_URL",
    "the base URL that agents are given; each gateway may have its own",
    default="http://127.0.0.1:8100",
)
MODEL_ROOTS = folders("MODEL_ROOTS", "the folders of models that jobs may use")
HUB_CACHE = folders("SEAMLESSFLOW_HUB_CACHE", "hub caches in which `hub://NAME` finds models")
MAX_UPLOAD_BYTES = whole_number(
    "SEAMLESSFLOW_MAX_UPLOAD_BYTES",
    "the largest upload, and the largest size that an archive may unpack to",
    default=16 * GIBIBYTE,
    minimum=1,
    default_note="16 GiB",
)
MAX_QUEUED_JOBS = whole_number(
    "SEAMLESSFLOW_MAX_QUEUED_JOBS",
    "how many jobs of one project may wait at the same time; beyond that a submission is refused with 429",
    default=200,
    minimum=1,
)
DATABASE_POOL = whole_number(
    "SEAMLESSFLOW_DATABASE_POOL",
    "connections that a process keeps to the database; `0` keeps one for each thread",
    default=0,
    default_note="16 in web, else 0",
)
LOG_LEVEL = one_of(
    "SEAMLESSFLOW_LOG_LEVEL",
    "the least severe message that is logged",
    choices=("DEBUG", "INFO", "WARNING", "ERROR"),
    default="INFO",
)
JOIN_TOKEN = secret(
    "SEAMLESSFLOW_JOIN_TOKEN",
    "lets hosts register themselves; without it, register each by hand",
    min_length=MIN_SECRET_LENGTH,
    default_note="none",
)
ALLOWED_HOSTS = items(
    "SEAMLESSFLOW_ALLOWED_HOSTS",
    "more host names of the web process, such as `web`, as machines see it; never `*`",
)
TRUSTED_ORIGINS = items("SEAMLESSFLOW_TRUSTED_ORIGINS", "more origins whose pages may send requests")
FORWARDED_ALLOW_IPS = text(
    "FORWARDED_ALLOW_IPS",
    "addresses whose `X-Forwarded-*` headers are trusted: those of the proxy (read by uvicorn)",
    default="127.0.0.1",
)
VARIABLES = (
    MODE, SECRET_KEY, WEB_URL, GATEWAY_URL, ALLOWED_HOSTS, TRUSTED_ORIGINS, FORWARDED_ALLOW_IPS, DATABASE_URL,
    GATEWAY_DATABASE_URL, BROKER_URL, BACKGROUND_BROKER_URL, EVENTS_URL, ARTIFACT_ROOT, MODEL_ROOTS, HUB_CACHE,
    MAX_UPLOAD_BYTES, JOIN_TOKEN, MAX_QUEUED_JOBS, MAX_CONNECTIONS, DATABASE_POOL, WATCHDOG_S, LOG_LEVEL,
)  # fmt: skip
