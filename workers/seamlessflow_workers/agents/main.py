"""The agent runner: `python -m seamlessflow_workers.agents --control-fd N --warm-process FILE`.

It speaks `core.protocol.child` with its supervisor. States: ready ⇄ in a phase. It exits when the control socket
closes, and dies with the process that started it.
"""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import msgspec
import uvloop

from seamlessflow.core.environment.episodes import Environment
from seamlessflow.core.job_spec import EnvironmentSection, JobSpec
from seamlessflow.core.protocol.child import (
    Begin,
    Doing,
    Drain,
    Ended,
    Failed,
    FromChild,
    Ping,
    Pong,
    Ready,
    Renew,
    ToChild,
    decode_to_child,
    encode_line,
)
from seamlessflow.core.protocol.worker import PhaseOrder, WarmProcess
from seamlessflow.runtime.extensions import UnusableExtension
from seamlessflow.runtime.logs import log_to_stderr
from seamlessflow_workers.agents.environments.registry import NotRunHere, environment_create
from seamlessflow_workers.agents.gateway_client import RunnerClient
from seamlessflow_workers.agents.phase import AgentPhase, DrainSignal
from seamlessflow_workers.agents.printed import PrintedBySessions
from seamlessflow_workers.clients.http import FencedOff, RequestRefused
from seamlessflow_workers.process.launch import bind_to_parent

LINE_BYTES = 1 << 20

PhaseRun = Callable[[PhaseOrder, DrainSignal], Coroutine[None, None, None]]
MakeEnvironment = Callable[[EnvironmentSection], Environment]

logger = logging.getLogger(__name__)


def main(make_environment: MakeEnvironment = environment_create) -> None:
    parser = argparse.ArgumentParser(prog="seamlessflow_workers.agents", description="Runs agent episodes.")
    parser.add_argument("--control-fd", type=int, required=True, help="inherited socket to the supervisor")
    parser.add_argument(
        "--warm-process", type=Path, required=True, help="JSON of core.protocol.worker.WarmProcess"
    )
    arguments = parser.parse_args()
    bind_to_parent(parent_pid=os.getppid(), death_signal=signal.SIGKILL)
    sys.stdout, sys.stderr = PrintedBySessions(sys.stdout), PrintedBySessions(sys.stderr)
    log_to_stderr()
    warm_process = msgspec.json.decode(arguments.warm_process.read_bytes(), type=WarmProcess)
    uvloop.run(_serve(arguments.control_fd, warm_process, make_environment))


async def _serve(control_fd: int, warm_process: WarmProcess, make_environment: MakeEnvironment) -> None:
    connection = socket.socket(fileno=control_fd)
    connection.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=LINE_BYTES)
    runner = AgentRunner(warm_process, writer, make_environment)
    try:
        await runner.obey(_messages(reader))
    finally:
        await runner.close()
        writer.close()


async def _messages(reader: asyncio.StreamReader) -> AsyncIterator[ToChild]:
    """Yield the supervisor's messages; end when the supervisor is gone."""
    while True:
        try:
            line = await reader.readline()
        except ConnectionError:
            return
        if not line.endswith(b"\n"):
            return
        yield decode_to_child(line)


class AgentRunner:
    """One phase at a time; the environment and its connections outlive phases."""

    def __init__(
        self,
        warm_process: WarmProcess,
        writer: asyncio.StreamWriter,
        make_environment: MakeEnvironment = environment_create,
    ) -> None:
        self._make_environment = make_environment
        self._gateway_url = warm_process.gateway_url.rstrip("/")
        self._control_plane_url = warm_process.control_plane_url
        self._spec = JobSpec.model_validate(warm_process.spec)
        self._writer = writer
        self._environment: Environment | None = None
        self._phase: _Phase | None = None
        self._client: RunnerClient | None = None  # of the phase
        self._last_doing: Doing | None = None

    async def obey(self, messages: AsyncIterator[ToChild]) -> None:
        self._send(Ready())
        async for message in messages:
            match message:
                case Begin(order=order):
                    self._begin(order)
                case Drain(phase_id=phase_id, grace_s=grace_s):
                    if self._phase is not None and self._phase.order.phase_id == phase_id:
                        self._phase.drained.give(grace_s)
                    else:
                        self._send(Ended(phase_id=phase_id, reason="the phase was not running"))
                case Ping():
                    self._send(Pong())
                case Renew(credential=credential):
                    if self._client is not None:
                        self._client.renew(credential)

    async def close(self) -> None:
        if self._phase is not None:
            self._phase.task.cancel()
            await asyncio.wait({self._phase.task})
        if self._environment is not None:
            await self._environment.close()

    def _begin(self, order: PhaseOrder) -> None:
        present = self._phase
        if present is None or present.task.done():
            self._last_doing = None
            self._phase = _Phase(order, self._run_phase)
        elif present.order.phase_id != order.phase_id:
            reason = f"the agent runner is still busy with phase {present.order.phase_id}"
            self._send(Failed(phase_id=order.phase_id, reason=reason))

    async def _run_phase(self, order: PhaseOrder, drained: DrainSignal) -> None:
        phase_id = order.phase_id
        try:
            await self._run_until_drained(order, drained)
        except FencedOff as error:
            self._send(Ended(phase_id=phase_id, reason=f"fenced off: {error}"))
        except (NotRunHere, RequestRefused, UnusableExtension) as error:
            self._send(Failed(phase_id=phase_id, reason=str(error)))
        except Exception as error:
            logger.exception("phase %s failed", phase_id)
            self._send(
                Failed(phase_id=phase_id, reason=f"the agent runner failed: {type(error).__name__}: {error}")
            )
        else:
            self._send(Ended(phase_id=phase_id, reason="drained"))

    async def _run_until_drained(self, order: PhaseOrder, drained: DrainSignal) -> None:
        policy_url = f"{self._gateway_url}/v1"
        if self._environment is None:
            self._environment = self._make_environment(self._spec.environment)
        async with RunnerClient(
            gateway_url=self._gateway_url,
            control_plane_url=self._control_plane_url,
            credential=order.credential,
        ) as client:
            self._client = client
            phase = AgentPhase(
                spec=self._spec,
                environment=self._environment,
                client=client,
                policy_url=policy_url,
                report=self._report_doing,
            )
            try:
                await phase.run(drained)
            finally:
                self._client = None

    def _report_doing(self, doing: Doing) -> None:
        if doing != self._last_doing:
            self._last_doing = doing
            self._send(doing)

    def _send(self, message: FromChild) -> None:
        self._writer.write(encode_line(message))


class _Phase:
    """A phase in progress: its order, its task, and the signal that drains it."""

    def __init__(self, order: PhaseOrder, run: PhaseRun) -> None:
        self.order = order
        self.drained = DrainSignal()
        self.task = asyncio.create_task(run(order, self.drained))
