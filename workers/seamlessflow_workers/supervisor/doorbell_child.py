"""The supervisor's side of the doorbell: keeps the Celery child alive and turns its bytes into wake-ups.

It reads bytes from a socket and calls `on_wake_up` once for any number of bytes that came together.
Invariant: the death of the child or of the broker costs only latency; the child is restarted with back-off, for ever.
"""

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Callable

from seamlessflow_workers.process.backoff import Backoff
from seamlessflow_workers.process.child import ChildCommand, ChildProcess
from seamlessflow_workers.process.logs import OutputLog

WAKE_UPS_READ = 4096
STABLE_S = 30.0

log = logging.getLogger(__name__)


class Doorbell:
    def __init__(
        self,
        *,
        machine: str,
        broker_url: str,
        cores: frozenset[int],
        output: OutputLog,
        on_wake_up: Callable[[], None],
    ) -> None:
        self._machine = machine
        self._broker_url = broker_url
        self._cores = cores
        self._output = output
        self._on_wake_up = on_wake_up
        self._child: ChildProcess | None = None

    async def run(self) -> None:
        backoff = Backoff(first_s=0.5, longest_s=10.0)
        while True:
            started_s = time.monotonic()
            ending = await self._run_child()
            if time.monotonic() - started_s > STABLE_S:
                backoff.reset()
            wait_s = backoff.next_s()
            log.warning("the doorbell %s; heartbeats continue, next try in %.1f s", ending, wait_s)
            await asyncio.sleep(wait_s)

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop(grace_s=0.0)  # it owns nothing

    async def _run_child(self) -> str:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        listener = asyncio.create_task(self._listen(ours))
        try:
            with theirs:
                self._child = await ChildProcess.spawn(
                    self._command(theirs.fileno()), cores=self._cores, log=self._output
                )
            return await self._child.wait()
        except OSError as error:
            return f"could not be started: {error}"
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)  # it no longer watches the descriptor
            ours.close()

    def _command(self, wake_up_fd: int) -> ChildCommand:
        module = "seamlessflow_workers.supervisor.doorbell"
        return ChildCommand(
            (sys.executable, "-m", module, "--machine", self._machine, "--wake-up-fd", str(wake_up_fd)),
            {"BROKER_URL": self._broker_url},
            (wake_up_fd,),
        )

    async def _listen(self, ours: socket.socket) -> None:
        while await asyncio.get_running_loop().sock_recv(ours, WAKE_UPS_READ):
            self._on_wake_up()
