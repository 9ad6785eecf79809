"""Runs a command of the control plane on the installation of a folder, or on the database that DATABASE_URL names.

Takes the command's words; leaves its exit status, and its output on our streams. It starts the embedded database if the
platform is not running, and locks the folder meanwhile.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import nullcontext

from seamlessflow.cli.local.environment import Addresses, plane_environment
from seamlessflow.cli.local.ports import LOOPBACK, PREFERRED_WEB_PORT
from seamlessflow.cli.local.process_tree import ProcessSpec, ProcessTree, run_to_end
from seamlessflow.cli.local.services import Services, services_prepare
from seamlessflow.cli.local.state import Home

INTERRUPTED = 130


def management_run(home: Home, *command: str) -> int:
    """Run `command` to its end and return its exit status."""
    status = run_to_end(_command(home, command, is_running=home.is_locked()))
    return INTERRUPTED if status is None else status


async def _command(home: Home, command: tuple[str, ...], *, is_running: bool) -> int:
    services = services_prepare(home, environ=os.environ)
    env = plane_environment(home, services.urls, _addresses(home), environ=os.environ)
    with nullcontext() if is_running else home.lock():
        async with ProcessTree(log_dir=home.logs) as tree:
            if not is_running:
                await tree.start(*_database_alone(services))
            return await _run(command, env)


def _addresses(home: Home) -> Addresses:
    run = home.read_run()
    if run is not None:
        return Addresses(run.web_url, run.gateway_url)
    web_port = home.web_port or PREFERRED_WEB_PORT
    return Addresses(f"http://{LOOPBACK}:{web_port}", f"http://{LOOPBACK}:{web_port + 1}")


def _database_alone(services: Services) -> list[ProcessSpec]:
    return [spec for spec in services.specs if spec.name == "postgres"]


async def _run(command: tuple[str, ...], env: Mapping[str, str]) -> int:
    """Run the command with our output streams. An interruption stops it before us."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "django", *command, env=dict(env), start_new_session=True
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)  # it removes its staged files
            await process.wait()
