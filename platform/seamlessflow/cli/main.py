"""The `seamlessflow` command: combines its groups and turns expected errors into one line.

Exit codes: 0 done; 1 something failed or the platform cannot be reached; 2 bad usage or bad input; 3 the job was
cancelled, or (`status`) the platform is not running; 4 the wait timed out; 5 the platform paused the job; 130 Ctrl-C.
"""

import importlib
import os
import sys

import click

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.failure import InstallationFailed
from seamlessflow.client import ApiError, JobStopped
from seamlessflow.core.lifecycle.jobs import JobState

# Command → module that defines it under the same name. Loaded on demand, because a machine's image
# has no database driver.
COMMANDS = {
    "up": "platform",
    "down": "platform",
    "status": "platform",
    "worker": "worker",
    "demo": "demo",
    "doctor": "doctor",
    "backup": "backups",
    "restore": "backups",
    "manage": "backups",
    "submit": "jobs",
    "jobs": "jobs",
    "queue": "queue",
    "shares": "shares",
    "pools": "pools",
    "machines": "machines",
    "members": "members",
    "storage": "storage",
    "tokens": "tokens",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"seamlessflow.cli.{COMMANDS[cmd_name]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="seamlessflow", prog_name="seamlessflow")
def cli() -> None:
    """Train language models with reinforcement learning: manage jobs, machines and the platform."""


def main() -> None:
    """Console entry point."""
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except (CliError, InstallationFailed, ApiError, JobStopped) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(exit_code_of(error))
    except BrokenPipeError:
        # The reader has closed the pipe, so discard the buffered output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        click.echo(f"error: {error.filename}: {error.strerror}", err=True)
        sys.exit(1)


def exit_code_of(error: CliError | InstallationFailed | ApiError | JobStopped) -> int:
    if isinstance(error, CliError):
        return error.exit_code
    if isinstance(error, InstallationFailed):
        return 1
    if isinstance(error, JobStopped):
        return 3 if error.job["state"] == JobState.CANCELLED else 5
    return 2 if error.status is not None and error.status < 500 else 1
