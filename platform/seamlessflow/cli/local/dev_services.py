"""Embedded PostgreSQL and Valkey in the foreground, for tests and for work on one plane.

    python -m seamlessflow.cli.local.dev_services --home DIR [--not-durable]

Prints `NAME=value` lines (DATABASE_URL, BROKER_URL, BACKGROUND_BROKER_URL, EVENTS_URL) and then
`ready`. It ends on SIGINT or SIGTERM, and both servers end with it, however it ends. A second
process on the same folder prints the same lines and exits at once with status 0.
"""

import asyncio
import os
import sys
from pathlib import Path

import click

from seamlessflow.cli.local.failure import InstallationFailed
from seamlessflow.cli.local.process_tree import ProcessTree, run_to_end
from seamlessflow.cli.local.services import Services, ServiceUrls, services_prepare
from seamlessflow.cli.local.state import Home, InstallationRunning


@click.command()
@click.option(
    "--home", "folder", required=True, type=click.Path(path_type=Path), help="Folder for data and logs."
)
@click.option("--not-durable", is_flag=True, help="For tests: faster, but a power cut may lose data.")
def main(folder: Path, not_durable: bool) -> None:
    home = Home(folder.absolute()).create()
    try:
        with home.lock():
            run_to_end(_serve(home, services_prepare(home, environ=os.environ, is_durable=not not_durable)))
    except InstallationRunning as error:
        _announce(services_prepare(home, environ=os.environ).urls)
        print(error, file=sys.stderr)
    except InstallationFailed as error:
        raise click.ClickException(str(error)) from error


async def _serve(home: Home, services: Services) -> None:
    async with ProcessTree(log_dir=home.logs) as tree:
        await tree.start(*services.specs)
        _announce(services.urls)
        await asyncio.Event().wait()


def _announce(urls: ServiceUrls) -> None:
    for name, value in urls.as_env().items():
        print(f"{name}={value}")
    print("ready", flush=True)


if __name__ == "__main__":
    main()
