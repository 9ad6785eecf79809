"""`backup` and `restore`: the installation of this folder, or of the database that DATABASE_URL names.

Both take a folder: `backup` leaves a complete back-up in it, `restore` an installation restored from it. A back-up may
be taken while the platform runs; a restore needs an installation that is empty and stopped. They start the embedded
database if it is not running.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import click

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.environment import Addresses, plane_environment
from seamlessflow.cli.local.process_tree import ProcessSpec, ProcessTree, run_to_end
from seamlessflow.cli.local.services import Services, plan_services
from seamlessflow.cli.local.state import Home, find_home

_NOWHERE = Addresses("http://127.0.0.1:8000", "http://127.0.0.1:8100")  # never contacted
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("folder", type=_FOLDER)
def backup(folder: Path) -> None:
    """Back up database and artifacts into FOLDER, while jobs run.

    An interrupted back-up leaves a folder that says so; run the same command again to start over.
    """
    home = find_home().create()
    _end(run_to_end(_command(home, "back_up", folder, is_running=home.is_locked())))


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def restore(folder: Path) -> None:
    """Restore the back-up in FOLDER into this empty installation; then run `seamlessflow up`."""
    home = find_home().create()
    if home.is_locked():
        raise CliError(
            f"the platform is running in {home.root}; stop it first with `seamlessflow down`", exit_code=2
        )
    _end(run_to_end(_command(home, "restore_back_up", folder, is_running=False)))


async def _command(home: Home, name: str, folder: Path, *, is_running: bool) -> int:
    services = plan_services(home, environ=os.environ)
    env = plane_environment(home, services.urls, _NOWHERE, environ=os.environ)
    with nullcontext() if is_running else home.lock():
        async with ProcessTree(log_dir=home.logs) as tree:
            if not is_running:
                await tree.start(*_database_alone(services))
            return await _run(name, folder.absolute(), env)


def _database_alone(services: Services) -> list[ProcessSpec]:
    return [spec for spec in services.specs if spec.name == "postgres"]


async def _run(name: str, folder: Path, env: Mapping[str, str]) -> int:
    """Run the management command with our output streams. An interruption stops it before us."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "django", name, str(folder), env=dict(env), start_new_session=True
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)  # it removes what it has staged
            await process.wait()


def _end(status: int | None) -> None:
    """Exit with the status of the command; None means that a signal stopped it."""
    if status != 0:
        sys.exit(130 if status is None else status)
