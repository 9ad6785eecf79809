"""The address of a PostgreSQL database, as its URL gives it. Imports no model."""

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

ACCEPTED_DATABASE = (
    "postgresql://user[:password]@host[:port]/name, or postgresql://user@/name?host=/socket/folder"
)


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    user: str
    password: str
    host: str  # a name, or the folder of a unix socket
    port: str
    name: str
    options: dict[str, str]


def database_address_parse(url: str) -> DatabaseAddress:
    """Split a PostgreSQL URL; a `host` in the query is a unix socket's folder. Raises ValueError."""
    split = urlsplit(url)
    options = dict(parse_qsl(split.query))
    name = unquote(split.path.lstrip("/"))
    if split.scheme not in ("postgresql", "postgres") or not name:
        raise ValueError(f"not a PostgreSQL URL: {split.scheme or 'no scheme'}")
    return DatabaseAddress(
        user=unquote(split.username or ""),
        password=unquote(split.password or ""),
        host=options.pop("host", "") or unquote(split.hostname or ""),
        port=options.pop("port", "") or (str(split.port) if split.port else ""),
        name=name,
        options=options,
    )
