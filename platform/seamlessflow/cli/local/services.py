"""Prepares the database and broker of an installation: embedded ones, or those that the environment names.

Takes the home folder, `DATABASE_URL`, `GATEWAY_DATABASE_URL`, `BROKER_URL`, `BACKGROUND_BROKER_URL` and `EVENTS_URL`.
Returns the addresses, and the servers to start for them (none if an address was given).
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.cli.local.identity import Identity, IdentityKind, choose_identity
from seamlessflow.cli.local.postgres import EmbeddedPostgres, find_bin_dir, readable_bin_dir
from seamlessflow.cli.local.process_tree import ProcessSpec
from seamlessflow.cli.local.state import Home, private_folder
from seamlessflow.cli.local.valkey import BrokerUse, EmbeddedValkey, find_program

# Where root keeps the data of an unprivileged server that cannot reach the home folder.
SYSTEM_STATE_DIR = Path("/var/lib")


@dataclass(frozen=True, slots=True)
class ServiceUrls:
    database_url: str
    gateway_database_url: str  # with the gateway's own role; empty: it uses the owner's role
    broker_url: str
    background_broker_url: str
    events_url: str

    def as_env(self) -> dict[str, str]:
        return {
            "DATABASE_URL": self.database_url,
            "GATEWAY_DATABASE_URL": self.gateway_database_url,
            "BROKER_URL": self.broker_url,
            "BACKGROUND_BROKER_URL": self.background_broker_url,
            "EVENTS_URL": self.events_url,
        }


@dataclass(frozen=True, slots=True)
class Services:
    urls: ServiceUrls
    specs: tuple[ProcessSpec, ...]


def services_prepare(home: Home, *, environ: Mapping[str, str], is_durable: bool = True) -> Services:
    """Decide what to start, and make its folders; a database that its server cannot reach is moved where it can.

    `is_durable=False` is for tests: faster, but a power cut may lose data.
    """
    specs = []
    database_url, gateway_url = environ.get("DATABASE_URL", ""), environ.get("GATEWAY_DATABASE_URL", "")
    if not database_url:
        postgres = _postgres(home, is_durable=is_durable)
        database_url, gateway_url = postgres.url, postgres.gateway_url
        specs.append(postgres.spec())
    broker_urls = _external_brokers(environ)
    if broker_urls is None:
        valkey = EmbeddedValkey(find_program(), home.root / "valkey", home.runtime_dir() / "valkey.sock")
        broker_urls = (
            valkey.celery_url(BrokerUse.MACHINES),
            valkey.celery_url(BrokerUse.BACKGROUND),
            valkey.redis_url(BrokerUse.EVENTS),
        )
        specs.append(valkey.spec())
    return Services(ServiceUrls(database_url, gateway_url, *broker_urls), tuple(specs))


def _external_brokers(environ: Mapping[str, str]) -> tuple[str, str, str] | None:
    broker_url = environ.get("BROKER_URL", "")
    if not broker_url:
        return None
    return (
        broker_url,
        environ.get("BACKGROUND_BROKER_URL", broker_url),
        environ.get("EVENTS_URL", broker_url),
    )


def _postgres(home: Home, *, is_durable: bool) -> EmbeddedPostgres:
    identity = choose_identity()
    base = _database_folder_prepare(home, identity)
    if identity.kind is IdentityKind.UNPRIVILEGED:
        socket_dir = private_folder(home.short_dir("postgres"), owner=identity.owner)
    else:
        socket_dir = private_folder(home.runtime_dir() / "postgres", owner=identity.owner)
    bin_dir = readable_bin_dir(find_bin_dir(), identity=identity, copy_dir=base)
    return EmbeddedPostgres(bin_dir, base / "postgres", socket_dir, identity, is_durable=is_durable)


def _database_folder_prepare(home: Home, identity: Identity) -> Path:
    """Return the home, or a system folder if the server's user cannot reach the home.

    A database that is already in the home is moved there; one that was moved once stays where it is.
    """
    elsewhere = SYSTEM_STATE_DIR / f"seamlessflow-{home.digest}"
    if not elsewhere.exists():
        if identity.can_walk_to(home.root / "postgres"):
            return home.root
        elsewhere.mkdir(mode=0o711)
    if (home.root / "postgres").exists() and not (elsewhere / "postgres").exists():
        shutil.move(home.root / "postgres", elsewhere / "postgres")
    return elsewhere
