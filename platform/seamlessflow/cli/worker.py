"""`worker`: run this host, or slices of it, as machines. Imports no plane, because machine images lack them."""

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from seamlessflow.cli.connection import client_of
from seamlessflow.cli.errors import CliError
from seamlessflow.cli.joining import machine_join
from seamlessflow.cli.local.listening import JOIN_TOKEN_VARIABLE
from seamlessflow.cli.local.state import find_home
from seamlessflow.cli.slices import host_prefix, run_together, slices_parse


@click.command()
@click.option("--name", default=None, help="Name of this machine; of slices, how their names begin.")
@click.option("--tags", default=None, help="Comma-separated capability tags, e.g. rollout,train.")
@click.option(
    "--slice",
    "slices",
    multiple=True,
    metavar="TAGS=DEVICES",
    help="Run some devices of this host as a machine, e.g. --slice rollout=0-5 --slice train=6,7, or on cores: "
    "rollout=cpu:0-3. Each gets its own supervisor and devices; all end together.",
)
@click.option(
    "--control-plane-url",
    default=None,
    help="Address of a remote platform. Default: the platform in this folder.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    default=None,
    help="File with the machine's token. Default: a token obtained by joining.",
)
@click.option("--cores", default=None, help="Cores for its child processes, e.g. 0 or 0,1. Default: all.")
@click.option(
    "--devices",
    default=None,
    help="Its devices: GPUs such as 0-5 or 0,1 or their UUIDs, or core sets such as cpu:0,cpu:1. Default: all "
    "GPUs that are visible, else all cores as one device.",
)
@click.option(
    "--agent-slots",
    type=click.IntRange(1, 64),
    default=None,
    help="For how many jobs it runs agents at the same time, if it has the tag agent. Default: 4.",
)
def worker(
    name: str | None,
    tags: str | None,
    slices: tuple[str, ...],
    control_plane_url: str | None,
    token_file: Path | None,
    cores: str | None,
    devices: str | None,
    agent_slots: int | None,
) -> None:
    """Run this host (or slices of it) as machines, in the foreground.

    With --control-plane-url, and SEAMLESSFLOW_JOIN_TOKEN in the environment, it joins a remote
    platform. A machine that is already known there keeps its tags.
    """
    environ = {key: value for key, value in os.environ.items() if key != JOIN_TOKEN_VARIABLE}
    slots = ("--agent-slots", str(agent_slots)) if agent_slots is not None else ()
    if slices:
        _refuse_beside_slices(tags=tags, token_file=token_file, cores=cores, devices=devices)
        prefix = name or host_prefix(os.environ.get("SEAMLESSFLOW_HOST_NAME") or socket.gethostname())
        parsed = slices_parse(slices, prefix=prefix, environ=os.environ)
        commands = [
            (*_supervisor(one.name, one.tags, control_plane_url, None), *one.flags, *slots) for one in parsed
        ]
        for one in parsed:
            click.echo(
                f"machine {one.name} {{{', '.join(one.tags)}}} on {', '.join(d.id for d in one.devices)}"
            )
        sys.exit(run_together(commands, environ=environ))
    if not name or not tags:
        raise CliError("--name and --tags are required, unless there is a --slice", exit_code=2)
    command = _supervisor(
        name, [tag.strip() for tag in tags.split(",") if tag.strip()], control_plane_url, token_file
    )
    command += ("--cores", cores) if cores else ()
    command += ("--devices", devices) if devices else ()
    # The supervisor takes this process over, signals included.
    os.execve(sys.executable, [*command, *slots], environ)  # noqa: S606


def _refuse_beside_slices(**given: object) -> None:
    for flag, value in given.items():
        if value is not None:
            shown = flag.replace("_", "-")
            raise CliError(f"--{shown} is for one machine, and cannot be given with --slice", exit_code=2)


def _supervisor(
    name: str, tags: Sequence[str], control_plane_url: str | None, token_file: Path | None
) -> tuple[str, ...]:
    """Register the machine, or join with it, and return its supervisor's command."""
    if control_plane_url is None:
        control_plane_url, token_file = _local_registration(name, tags)
    elif token_file is None:
        token_file = machine_join(
            find_home(), name=name, tags=tags, control_plane_url=control_plane_url, environ=os.environ
        )
    return (
        *(sys.executable, "-m", "seamlessflow_workers.supervisor", "--name", name),
        *("--control-plane-url", control_plane_url, "--token-file", str(token_file)),
    )


def _local_registration(name: str, tags: Sequence[str]) -> tuple[str, Path]:
    """Register a machine with the platform in this folder through its REST API."""
    home = find_home()
    path = home.create().machine_token_file(name)
    with client_of(home) as client:
        if not path.exists():
            home.kept(path, client.machine_register(name, list(tags))["token"])
        return client.base_url, path
