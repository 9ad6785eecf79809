"""`backup`, `restore` and `manage`: the installation of this folder, or of the database that DATABASE_URL names.

The first two take a folder: `backup` leaves a complete back-up in it, `restore` an installation restored from it. A
back-up may be taken while the platform runs; a restore needs an installation that is empty and stopped. `manage` runs
any command of the control plane.
"""

import os
import sys
from pathlib import Path

import click

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.management import management_run
from seamlessflow.cli.local.state import find_home

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("folder", type=_FOLDER)
def backup(folder: Path) -> None:
    """Back up database and artifacts into FOLDER, while jobs run.

    An interrupted back-up leaves a folder that says so; run the same command again to start over.
    """
    sys.exit(management_run(find_home().create(), "back_up", str(folder.absolute())))


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def restore(folder: Path) -> None:
    """Restore the back-up in FOLDER into this empty installation; then run `seamlessflow up`."""
    home = find_home().create()
    if home.is_locked():
        raise CliError(
            f"the platform is running in {home.root}; stop it first with `seamlessflow down`", exit_code=2
        )
    sys.exit(management_run(home, "restore_back_up", str(folder.absolute())))


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND [ARGUMENT]...")
def manage(command: tuple[str, ...]) -> None:
    """Run a command of the control plane on the installation of this folder.

    For example create_sign_in_link, create_token or register_machine; `manage COMMAND --help` shows the options of one.
    In a container, the same command is `python -m django COMMAND`.
    """
    home = find_home()
    if not (home.root / "migrated").exists() and "DATABASE_URL" not in os.environ:
        raise CliError(
            f"there is no installation in {home.root}; set SEAMLESSFLOW_HOME to its folder, or start one with "
            "`seamlessflow up`"
        )
    sys.exit(management_run(home, *command))
