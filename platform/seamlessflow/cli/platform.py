"""`up`, `down` and `status`: the platform on this machine."""

import asyncio
import json
import os
import subprocess
import sys
import time
from http import HTTPStatus
from pathlib import Path

import click

from seamlessflow.cli.connection import client_of as client_of
from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.gpu_machines import NODE, gpus_here, placed, placement_line
from seamlessflow.cli.local.layouts import LAYOUTS, MULTIPLEXED
from seamlessflow.cli.local.listening import listening_address, listening_said
from seamlessflow.cli.local.machines import LocalMachine
from seamlessflow.cli.local.ports import LOOPBACK
from seamlessflow.cli.local.process_tree import run_to_end
from seamlessflow.cli.local.stack import CREATE_CLI_TOKEN, Stack, running_stack
from seamlessflow.cli.local.state import Home, RunInfo, find_home
from seamlessflow.client import ApiError, Client

STOP_TIMEOUT_S = 60.0
MAX_GATEWAYS = 16
DETACHED_START_TIMEOUT_S = 120.0
DETACHED_POLL_S = 0.1


@click.command()
@click.option(
    "--layout",
    type=click.Choice(sorted(LAYOUTS)),
    default=None,
    help="Layout of the machines, which decides their tags. Default: multiplexed; on a host with GPUs, one machine of "
    "all GPUs that rolls out and trains in turn.",
)
@click.option(
    "--no-machines",
    is_flag=True,
    help="Start only the control plane and the gateway; machines join from elsewhere.",
)
@click.option(
    "--gateways",
    "num_gateways",
    type=click.IntRange(1, MAX_GATEWAYS),
    default=1,
    show_default=True,
    help="Number of gateways, which divide the sessions; if one dies, the others go on with its sessions.",
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    default=LOOPBACK,
    show_default=True,
    help="Address of this host at which the dashboard, REST and the gateway listen. Name one of a private network so "
    "that other hosts can join with `seamlessflow worker`; traffic is plain HTTP, and every request needs a token.",
)
@click.option(
    "--detach", is_flag=True, help="Return once everything is running; `seamlessflow down` stops it."
)
def up(layout: str | None, no_machines: bool, num_gateways: int, listen: str, detach: bool) -> None:
    """Start the platform here: database, broker, planes and machines. Ctrl-C stops everything."""
    host = listening_address(listen)
    if detach:
        _start_detached(layout, no_machines=no_machines, num_gateways=num_gateways, host=host)
        return
    machines = () if no_machines else _machines(layout)
    run_to_end(_serve(find_home(), machines, num_gateways, host))


def _machines(layout: str | None) -> tuple[LocalMachine, ...]:
    """Return the machines of a layout, or those that suit this host, and print the choice on a host with GPUs."""
    gpus = gpus_here(os.environ)
    wanted = NODE if layout is None and gpus else LAYOUTS[layout or MULTIPLEXED]
    machines = placed(wanted, gpus, cores=os.sched_getaffinity(0))
    if gpus:
        click.echo(placement_line(machines, gpus))
    return machines


@click.command()
def down() -> None:
    """Stop the platform in this folder."""
    home = find_home()
    if home.holder() is None:
        click.echo("not running")
        return
    if not home.request_stop(timeout_s=STOP_TIMEOUT_S):
        raise CliError(
            f"the platform did not stop within {STOP_TIMEOUT_S:.0f} s; its logs are in {home.logs}"
        )
    click.echo("stopped")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as JSON, and nothing else.")
def status(as_json: bool) -> None:
    """Show whether the platform is running, with its machines and running jobs."""
    home = find_home()
    run = home.read_run()
    if run is None:
        holder = home.holder()
        raise CliError(
            f"starting or stopping (process {holder}); its logs are in {home.logs}"
            if holder
            else f"not running in {home.root}; start it with `seamlessflow up`, or set SEAMLESSFLOW_HOME to the folder "
            "of another installation",
            exit_code=3,
        )
    if as_json:
        shown = ("web_url", "gateway_url", "more_gateway_urls", "started_at", "pid")
        click.echo(json.dumps({name: getattr(run, name) for name in shown}, indent=2))
        return
    gateways = ", ".join([run.gateway_url, *run.more_gateway_urls])
    click.echo(f"up since {run.started_at}: {run.web_url} (gateway {gateways}, process {run.pid})")
    with client_of(home) as client:
        for machine in client.machine_list():
            click.echo(f"machine {machine['name']:<10} {machine['health']:<11} {','.join(machine['tags'])}")
        for job in client.job_list(state="running"):
            click.echo(f"job     {job['id']} {job['name']} version {job['latest_version']}")


async def welcome(stack: Stack) -> None:
    """Make sure that the command line's token works, and print the dashboard link."""
    token = stack.home.cli_token_file
    if not await _token_works(stack, token):
        token.unlink()
        stack.home.kept(token, (await stack.manage(*CREATE_CLI_TOKEN)).split()[-1])
    click.echo(f"dashboard  {stack.sign_in_link}  (signs you in once)")
    click.echo(f"gateway    {stack.gateway_url}  (for agents)")


async def _serve(home: Home, machines: tuple[LocalMachine, ...], num_gateways: int, host: str) -> None:
    async with running_stack(
        home, machines, num_gateways=num_gateways, listen_host=host, before_announced=welcome
    ) as stack:
        if host != LOOPBACK:
            click.echo(listening_said(home, stack.web_url))
        click.echo("up; Ctrl-C stops it")
        await asyncio.Event().wait()


async def _token_works(stack: Stack, token: Path) -> bool:
    """Whether the token belongs to this database and still allows control of the installation."""

    def ask() -> bool:
        with Client(stack.web_url, token.read_text().strip()) as client:
            try:
                return bool(client.me()["is_staff"])
            except ApiError as error:
                if error.status == HTTPStatus.UNAUTHORIZED:
                    return False
                raise

    return await asyncio.to_thread(ask)


def _start_detached(layout: str | None, *, no_machines: bool, num_gateways: int, host: str) -> None:
    home = find_home().create()
    if home.is_locked():
        raise home.already_running()
    log = home.logs / "up.log"
    command = [
        sys.executable,
        "-m",
        "seamlessflow.cli",
        "up",
        *(["--layout", layout] if layout else []),
        "--gateways",
        str(num_gateways),
        *(["--no-machines"] if no_machines else []),
        *("--listen", host),
    ]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        run = _until_up(home, process, log)
    except BaseException:
        process.terminate()  # no process waits for it any more
        raise
    click.echo(f"up at {run.web_url}; the sign-in link is in {log}; `seamlessflow down` stops it")


def _until_up(home: Home, process: subprocess.Popen[bytes], log: Path) -> RunInfo:
    deadline_at = time.monotonic() + DETACHED_START_TIMEOUT_S
    while (run := home.read_run()) is None or run.pid != process.pid:
        if process.poll() is not None or time.monotonic() > deadline_at:
            last = (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
            raise CliError(f"the platform did not start: {last} (log: {log})")
        time.sleep(DETACHED_POLL_S)
    return run
