"""Brings the database's tables up to date, and remembers that it did.

Takes the database's address and the migrations on disk; leaves a migrated database and the file `migrated`. Invariants:
only one launcher migrates a database at a time; the step is skipped only for exactly the database and the migrations
that the file names.
"""

import hashlib
import importlib.util
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg

from seamlessflow.cli.local.failure import InstallationFailed
from seamlessflow.cli.local.state import Home

# An arbitrary number, the same for every launcher of this product.
MIGRATION_LOCK = 0x5EA31E55
CONNECT_TIMEOUT_S = 10


class DatabaseUnreachable(InstallationFailed):
    """The database does not answer at its address."""


async def database_identity(database_url: str) -> str:
    """Return an identity of this database that a new one created at the same address does not have."""
    async with await _connect(database_url) as connection:
        cursor = await connection.execute(
            "SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database())"
            " FROM pg_control_system()"
        )
        row = await cursor.fetchone()
    assert row is not None
    return f"{row[0]}/{row[1]}"


async def gateway_database(database_url: str, gateway_url: str) -> tuple[str, str]:
    """Return the gateway's database address and a reason: its own role's address if that has its grants (reason empty),
    else the owner's."""
    if not gateway_url:
        return database_url, "the gateway uses the database owner's role: GATEWAY_DATABASE_URL is not set"
    try:
        async with await psycopg.AsyncConnection.connect(
            gateway_url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
        ) as connection:
            await connection.execute("SELECT 1 FROM trajectory_group LIMIT 1")
    except psycopg.Error as error:
        reason = str(error).partition("\n")[0]
        return (
            database_url,
            f"the gateway uses the database owner's role, because its own cannot be used: {reason}",
        )
    return gateway_url, ""


async def bring_up_to_date(
    home: Home, *, database_url: str, identity: str, migrate: Callable[[], Awaitable[object]]
) -> bool:
    """Call `migrate` unless nothing has changed since the last time. Returns whether it was
    called."""
    wanted = f"{identity} {_migrations_digest()}\n"
    done = home.root / "migrated"
    if done.exists() and done.read_text() == wanted:
        return False
    async with await _connect(database_url) as connection:
        await connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
        await migrate()
    done.write_text(wanted)
    return True


async def _connect(database_url: str) -> psycopg.AsyncConnection[tuple[object, ...]]:
    try:
        return await psycopg.AsyncConnection.connect(
            database_url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
        )
    except psycopg.OperationalError as error:
        reason = str(error).splitlines()[0]
        raise DatabaseUnreachable(f"The database named by DATABASE_URL does not answer: {reason}") from error


def _migrations_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(_control_plane_dir().glob("**/migrations/*")):
        if path.suffix in {".py", ".sql"}:
            digest.update(f"{path.name}\n".encode())
            digest.update(path.read_bytes())
    digest.update(_source("seamlessflow.core.access.gateway_grants").read_bytes())
    return digest.hexdigest()


def _control_plane_dir() -> Path:
    return _source("seamlessflow.control_plane").parent


def _source(module: str) -> Path:
    # Found, not imported: importing the control plane would load Django into the launcher.
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)
