"""`python -m seamlessflow.data_plane --host 127.0.0.1 --port 8100`: one gateway process."""

import argparse
import asyncio
import logging
import os
import sys

import uvicorn

from seamlessflow.data_plane.app import Gateway
from seamlessflow.data_plane.config import InvalidSettings, settings_read
from seamlessflow.data_plane.store.connection import DatabaseDown, database_wait

BACKLOG = 2048
KEEPALIVE_TIMEOUT_S = 75
STOP_TIMEOUT_S = 5


def main() -> int:
    arguments = _arguments()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        settings = settings_read(os.environ, host=arguments.host, port=arguments.port)
        asyncio.run(database_wait(settings.database_url))
    except (InvalidSettings, DatabaseDown) as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 1
    config = uvicorn.Config(
        Gateway(settings),
        host=arguments.host,
        port=arguments.port,
        loop="uvloop",
        http="httptools",
        lifespan="on",
        access_log=False,
        log_config=None,
        backlog=BACKLOG,
        timeout_keep_alive=KEEPALIVE_TIMEOUT_S,
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
        server_header=False,
    )
    server = uvicorn.Server(config)
    server.run()
    return 0 if server.started else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="seamlessflow.data_plane", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
