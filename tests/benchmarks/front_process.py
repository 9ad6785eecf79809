"""A front in a process of its own, as a supervisor has one: `python -m tests.benchmarks.front_process
SOCKET`.

It stands before the engine on that unix socket, admits TOKEN, JOB and VERSION, and prints its port.
"""

import asyncio
import sys
from pathlib import Path
from uuid import UUID

import uvloop

from seamlessflow_workers.rollout.front import Front

TOKEN, JOB, VERSION = "right", UUID(int=5), 3


async def _serve(engine_socket: Path) -> None:
    front = Front(engine_socket=engine_socket, job_id=JOB, on_change=lambda: None)
    await front.start()
    front.open(token=TOKEN, version=VERSION)
    print(front.endpoint.rpartition(":")[2], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
