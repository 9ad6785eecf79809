"""`python -m seamlessflow_workers.supervisor --name alpha --control-plane-url URL --token-file FILE`.

Exit status: 0 after SIGTERM or Ctrl-C, 1 with one line for a setting that cannot work, 1 with a trace for a defect.
"""

import asyncio
import dataclasses
import os
import signal
import sys
from typing import Any

import aiohttp
import uvloop

from seamlessflow.runtime.logs import log_to_stderr
from seamlessflow.runtime.variables import InvalidSetting
from seamlessflow_workers.process.launch import bind_to_parent
from seamlessflow_workers.supervisor.config import InvalidFlag, SupervisorConfig, read_config
from seamlessflow_workers.supervisor.home import AlreadyRunning, MachineHome, UnsafeFolder
from seamlessflow_workers.supervisor.machine import Machine


def main(**replaced: Any) -> int:
    """Run the supervisor. `replaced` has configuration fields without a flag, such as the programs of children."""
    # SIGTERM, not SIGKILL: when the launcher goes, gateways still get their partial tokens.
    bind_to_parent(parent_pid=os.getppid(), death_signal=signal.SIGTERM)
    log_to_stderr()
    try:
        config = dataclasses.replace(read_config(sys.argv[1:], os.environ), **replaced)
        with MachineHome(config.home, name=config.name) as home:
            os.environ.update(home.child_environment(os.environ))
            uvloop.run(_run(config, home))
    except (InvalidFlag, InvalidSetting, AlreadyRunning, UnsafeFolder) as error:
        sys.stderr.write(f"supervisor: {error}\n")
        return 1
    return 0


async def _run(config: SupervisorConfig, home: MachineHome) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with aiohttp.ClientSession() as session:
        await Machine(config, home, session).run(stopped)


if __name__ == "__main__":
    sys.exit(main())
