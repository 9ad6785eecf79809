"""`worker`: run this host, or a slice of it, as a machine. Imports no plane, because machine images lack them."""

import os
import sys
from pathlib import Path

import click

from seamlessflow.cli.connection import client_of
from seamlessflow.cli.joining import JOIN_TOKEN_VARIABLE, machine_join
from seamlessflow.cli.local.state import find_home


@click.command()
@click.option("--name", required=True, help="Name of this machine.")
@click.option("--tags", required=True, help="Comma-separated capability tags, e.g. rollout,train.")
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
    "--agent-slots",
    type=click.IntRange(1, 64),
    default=None,
    help="For how many jobs it runs agents at the same time, if it has the tag agent. Default: 4.",
)
def worker(
    name: str,
    tags: str,
    control_plane_url: str | None,
    token_file: Path | None,
    cores: str | None,
    agent_slots: int | None,
) -> None:
    """Run this host (or a slice of it) as a machine, in the foreground.

    With --control-plane-url, and SEAMLESSFLOW_JOIN_TOKEN in the environment, it joins a remote
    platform. A machine that is already known there keeps its tags.
    """
    if control_plane_url is None:
        control_plane_url, token_file = _local_registration(name, tags)
    elif token_file is None:
        wanted = [tag.strip() for tag in tags.split(",") if tag.strip()]
        token_file = machine_join(
            find_home(), name=name, tags=wanted, control_plane_url=control_plane_url, environ=os.environ
        )
    command = [sys.executable, "-m", "seamlessflow_workers.supervisor", "--name", name]
    command += ["--control-plane-url", control_plane_url, "--token-file", str(token_file)]
    command += ["--cores", cores] if cores else []
    command += ["--agent-slots", str(agent_slots)] if agent_slots is not None else []
    environ = {key: value for key, value in os.environ.items() if key != JOIN_TOKEN_VARIABLE}
    os.execve(sys.executable, command, environ)  # noqa: S606 - the supervisor takes this process over, signals included


def _local_registration(name: str, tags: str) -> tuple[str, Path]:
    """Register a machine with the platform in this folder through its REST API."""
    home = find_home()
    path = home.create().machine_token_file(name)
    with client_of(home) as client:
        if not path.exists():
            home.kept(path, client.machine_register(name, tags.split(","))["token"])
        return client.base_url, path
