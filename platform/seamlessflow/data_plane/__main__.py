"""`python -m seamlessflow.data_plane --host 127.0.0.1 --port 8100`: one gateway process."""

import argparse
import asyncio
import os
import resource
import socket
import sys
from http import HTTPStatus

from seamlessflow.data_plane.app import Gateway
from seamlessflow.data_plane.config import InvalidSettings, settings_read
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.routes.http import JSON
from seamlessflow.data_plane.store.connection import DatabaseDown, database_wait, role_report
from seamlessflow.runtime.http.limits import HttpLimits
from seamlessflow.runtime.http.protocol import limited_protocol
from seamlessflow.runtime.http.server import server_config, server_run
from seamlessflow.runtime.logs import log_to_stderr

STOP_TIMEOUT_S = 5


def main() -> int:
    arguments = _arguments()
    log_to_stderr()
    try:
        settings = settings_read(os.environ, host=arguments.host, port=arguments.port)
        asyncio.run(_database_ready(settings.database_url))
    except (InvalidSettings, DatabaseDown) as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 1
    _allow_files()
    limits = HttpLimits(
        _refusal,
        max_connections=settings.max_connections,
        head_s=settings.head_timeout_s,
        body_s=settings.body_timeout_s,
        drain_s=settings.drain_timeout_s,
    )
    config = server_config(
        Gateway(settings),
        limited_protocol(limits),
        host=arguments.host,
        port=arguments.port,
        loop="uvloop",
        lifespan="on",
        log_config=None,
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
    )
    inherited = None if arguments.fd is None else socket.socket(fileno=arguments.fd)
    return 0 if server_run(config, inherited) else 1


def _refusal(status: HTTPStatus, message: str) -> tuple[bytes, bytes]:
    return JSON, ApiError(status, message).body


def _allow_files() -> None:
    """Raise the limit on open files: each connection is one, and many systems start with 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _database_ready(url: str) -> None:
    await database_wait(url)
    await role_report(url)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="seamlessflow.data_plane", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument(
        "--fd",
        type=int,
        help="a listening socket on this host and port, inherited from a launcher that keeps it open: "
        "clients that connect while no gateway runs wait for the next one",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
