"""One child process: spawned, logged, waited for, stopped.

It takes a command line, an environment, cores and a sink for the output, and returns in words how the child ended.
Invariants: the child is spawned from the main thread (its death signal is tied to the spawning thread); it leads its
own process group, which is stopped as a whole; it has no secret of the supervisor.
"""

import asyncio
import contextlib
import functools
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from seamlessflow.runtime.pipe_reader import PipeReader
from seamlessflow_workers.process.environment import child_environment

LAUNCH = Path(__file__).with_name("launch.py")
PIPE_DRAIN_S = 0.2  # a grandchild may keep the pipe open
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChildCommand:
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)  # added to the supervisor's own
    inherited_fds: tuple[int, ...] = ()


class Running(Protocol):
    """A process of ours; `wait` returns its exit code, negative for a signal."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> int: ...


class Spawner(Protocol):
    """Starts programs that it has ready; `spawn` returns None for others."""

    async def spawn(
        self, command: ChildCommand, *, cores: frozenset[int], environment: Mapping[str, str], output: int
    ) -> Running | None: ...


class Output(Protocol):
    """Where a child's output goes: `logs.OutputLog`, or one of several that write to it."""

    @property
    def last_line(self) -> str: ...

    def write(self, chunk: bytes) -> None: ...


class ChildProcess:
    """Running until `wait` returns."""

    def __init__(self, process: Running, output: PipeReader, log: Output) -> None:
        self._process = process
        self._output = output
        self._log = log
        self.exit_code: int | None = None  # negative for a signal

    @classmethod
    async def spawn(
        cls,
        command: ChildCommand,
        *,
        cores: frozenset[int],
        log: Output,
        fork_server: Spawner | None = None,
    ) -> Self:
        """Fork the child from the fork server if it has the program, else start a new process. Raises OSError."""
        environment = child_environment(command.environment, num_cores=len(cores))
        read_end, write_end = os.pipe()
        try:
            process: Running | None = None
            if fork_server is not None:
                process = await fork_server.spawn(
                    command, cores=cores, environment=environment, output=write_end
                )
            if process is None:
                process = await _launch(command, cores=cores, environment=environment, output=write_end)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        return cls(process, PipeReader(read_end, functools.partial(_write, log)), log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def last_line(self) -> str:
        """Return its last line of output."""
        return self._log.last_line

    async def wait(self) -> str:
        """Return how it ended: exit code or signal, and its last line of output."""
        code = self.exit_code = await self._process.wait()
        await self._output.wait_closed(timeout_s=PIPE_DRAIN_S)
        ending = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return f"{ending}; last line: {self.last_line}" if self.last_line else ending

    async def stop(self, *, grace_s: float) -> None:
        """Send SIGTERM to the whole group, and kill it after `grace_s`."""
        self._signal_group(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):  # then it is killed below
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        self._signal_group(signal.SIGKILL)
        await self._process.wait()
        await self._output.wait_closed(timeout_s=PIPE_DRAIN_S)
        self._output.close()

    def kill(self) -> None:
        """Kill the whole group at once, because a stopped process reacts to no other signal."""
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # they have all ended already
            os.killpg(self._process.pid, number)


async def _launch(
    command: ChildCommand, *, cores: frozenset[int], environment: Mapping[str, str], output: int
) -> Running:
    shown_cores = ",".join(map(str, sorted(cores)))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(LAUNCH), str(os.getpid()), shown_cores),
        *command.arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=command.inherited_fds,
        env=environment,
        start_new_session=True,
    )


def _write(log: Output, chunk: bytes) -> None:
    try:
        log.write(chunk)
    except OSError as error:  # a full disk must not stop the child
        logger.warning("%d bytes of a child's output were lost: %s", len(chunk), error)
