"""Reads the control plane's process settings from the environment, once, at start.

Takes a mapping of variables; returns typed values. A missing or malformed value raises `InvalidSetting`, whose message
names the variable, the value and the accepted ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

ACCEPTED_DATABASE = (
    "postgresql://user[:password]@host[:port]/name, or postgresql://user@/name?host=/socket/folder"
)
ACCEPTED_BROKER = "redis://host:port/n, rediss://host:port/n or redis+socket:///path?virtual_host=n"
ACCEPTED_URL = "http://host[:port] or https://host[:port]"
MIN_SECRET_LENGTH = 32
GIBIBYTE = 1024**3


class InvalidSetting(ValueError):
    """An environment variable that is missing or cannot be used."""

    def __init__(self, name: str, value: str | None, accepted: str) -> None:
        got = "is not set" if value is None else f"is {value!r}"
        super().__init__(f"{name} {got}; accepted: {accepted}")


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    user: str
    password: str
    host: str  # a name, or the folder of a unix socket
    port: str
    name: str
    options: dict[str, str]

    def connect_arguments(self) -> dict[str, str]:
        """Return the keywords for `psycopg.connect`."""
        known = {
            "user": self.user, "password": self.password, "host": self.host, "port": self.port, "dbname": self.name,
        }  # fmt: skip
        return {key: value for key, value in known.items() if value} | self.options


@dataclass(frozen=True, slots=True)
class Environment:
    environ: Mapping[str, str]

    def text(self, name: str, *, default: str | None = None, accepted: str = "any text") -> str:
        value = self.environ.get(name, "").strip() or default
        if value is None:
            raise InvalidSetting(name, None, accepted)
        return value

    def secret(self, name: str) -> str:
        value = self.text(name, accepted=f"at least {MIN_SECRET_LENGTH} characters")
        if len(value) < MIN_SECRET_LENGTH:
            shown = f"{len(value)} characters long"
            raise InvalidSetting(name, shown, f"at least {MIN_SECRET_LENGTH} characters")
        return value

    def integer(self, name: str, *, default: int, minimum: int = 0) -> int:
        value = self.text(name, default=str(default))
        accepted = f"a whole number from {minimum} on"
        try:
            number = int(value)
        except ValueError:
            raise InvalidSetting(name, value, accepted) from None
        if number < minimum:
            raise InvalidSetting(name, value, accepted)
        return number

    def one_of(self, name: str, *, default: str, choices: tuple[str, ...]) -> str:
        value = self.text(name, default=default)
        if value not in choices:
            raise InvalidSetting(name, value, ", ".join(choices))
        return value

    def items(self, name: str, *, default: str = "") -> list[str]:
        return [item.strip() for item in self.text(name, default=default).split(",") if item.strip()]

    def http_url(self, name: str, *, default: str) -> str:
        value = self.text(name, default=default).rstrip("/")
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidSetting(name, value, ACCEPTED_URL)
        return value

    def broker_url(self, name: str, *, default: str | None = None) -> str:
        value = self.text(name, default=default, accepted=ACCEPTED_BROKER)
        if urlsplit(value).scheme not in ("redis", "rediss", "redis+socket", "unix"):
            raise InvalidSetting(name, value, ACCEPTED_BROKER)
        return value

    def database(self, name: str) -> DatabaseAddress:
        value = self.text(name, accepted=ACCEPTED_DATABASE)
        address = database_address_parse(value)
        if address is None:
            raise InvalidSetting(name, value, ACCEPTED_DATABASE)
        return address

    def optional_database(self, name: str) -> DatabaseAddress | None:
        """Return the address; None if the variable is missing or empty."""
        return self.database(name) if self.environ.get(name, "").strip() else None

    def made_folder(self, name: str, path: Path) -> Path:
        """Create the folder `path`, which lies in the folder that the variable names."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidSetting(
                name, str(path), f"a folder this user may write in ({error.strerror})"
            ) from error
        return path

    def folders(self, name: str) -> tuple[Path, ...]:
        paths = tuple(Path(part) for part in self.text(name, default="").split(":") if part)
        for path in paths:
            if not path.is_absolute():
                raise InvalidSetting(name, str(path), "absolute folders joined by ':'")
        return tuple(path.resolve() for path in paths)


def database_address_parse(url: str) -> DatabaseAddress | None:
    """Split a PostgreSQL URL; return None if it is not one. A `host` in the query is a unix socket's folder."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    name = unquote(parts.path.lstrip("/"))
    if parts.scheme not in ("postgresql", "postgres") or not name:
        return None
    return DatabaseAddress(
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        host=options.pop("host", "") or unquote(parts.hostname or ""),
        port=options.pop("port", "") or (str(parts.port) if parts.port else ""),
        name=name,
        options=options,
    )
