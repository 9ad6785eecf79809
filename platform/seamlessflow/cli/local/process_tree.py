"""Named child processes that live and die with this one.

Takes `ProcessSpec`s and commands to run once; keeps processes running, writes their output to rotated files and counts
restarts. Invariants: the kernel signals a child when this process ends, however it ends; a child that dies is restarted
after a growing delay; `stop` ends all children in reverse starting order.

States of a child: starting → ready ⇄ restarting → stopped. Only `ProcessTree` moves them. Everything must run in the
main thread: the kernel sends the death signal when the spawning *thread* ends.
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from seamlessflow.cli.local.failure import InstallationFailed
from seamlessflow.cli.local.identity import Identity, same_identity, wrapped
from seamlessflow.cli.local.log_files import RotatedLog, log_tail
from seamlessflow.runtime.pipe_reader import PipeReader

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

PROBE_INTERVAL_S = 0.03
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 5.0
STABLE_AFTER_S = 10.0
LAST_WORDS_S = 1.0


class ProcessState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPED = "stopped"


class ProcessDidNotStart(InstallationFailed):
    """A child ended, or did not answer in time, before it was ready for the first time."""


class CommandFailed(InstallationFailed):
    """A command that must succeed ended with a status other than 0, or took too long."""


async def always_ready() -> bool:
    return True


def nothing_to_prepare() -> None:
    """Do nothing, for programs that need no preparation."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One program. `ready` is polled until it returns true; `before_start` runs before every
    start."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    ready: Callable[[], Awaitable[bool]] = always_ready
    before_start: Callable[[], None] = nothing_to_prepare
    ready_timeout_s: float = 60.0
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_s: float = 10.0
    death_signal: signal.Signals = signal.SIGKILL
    identity: Identity = field(default_factory=same_identity)
    cwd: Path | None = None
    pass_fds: tuple[int, ...] = ()  # open files that it inherits


@dataclass(slots=True)
class ManagedProcess:
    """A `ProcessSpec` and the state of its process."""

    spec: ProcessSpec
    log: RotatedLog
    state: ProcessState = ProcessState.STARTING
    num_restarts: int = 0
    process: asyncio.subprocess.Process | None = None
    output: PipeReader | None = None  # of the process, or of the last one
    keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process and self.process.returncode is None else None


class ProcessTree:
    """Starts, watches and stops children. Use as `async with ProcessTree(log_dir=...) as tree`."""

    def __init__(self, *, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._batches: list[list[ManagedProcess]] = []

    async def __aenter__(self) -> "ProcessTree":
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "A process tree runs in the main thread only: death signals follow the thread."
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def processes(self) -> tuple[ManagedProcess, ...]:
        return tuple(managed for batch in self._batches for managed in batch)

    async def start(self, *specs: ProcessSpec) -> None:
        """Start these in parallel and return when all are ready; raises the first failure."""
        batch = [ManagedProcess(spec, RotatedLog(self._log_dir / f"{spec.name}.log")) for spec in specs]
        self._batches.append(batch)
        try:
            async with asyncio.TaskGroup() as group:
                for managed in batch:
                    group.create_task(_first_start(managed), name=f"start {managed.spec.name}")
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def stop(self) -> None:
        """End all children, the last started first."""
        while self._batches:
            await asyncio.gather(*(_end(managed) for managed in self._batches[-1]))
            self._batches.pop()

    async def run_once(self, spec: ProcessSpec, *, timeout_s: float = 120.0) -> str:
        """Run a command until it ends and return its standard output."""
        process = await _spawn(spec, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(timeout_s):
                output, errors = await process.communicate()
        except TimeoutError as error:
            raise CommandFailed(f"{spec.name} did not end within {timeout_s:g} s.") from error
        finally:
            _kill_group(process)
        log = RotatedLog(self._log_dir / f"{spec.name}.log")
        log.write(errors)
        log.close()
        if process.returncode != 0:
            raise CommandFailed(_failure(spec.name, process.returncode, _last_line(errors)))
        return output.decode()


async def _first_start(managed: ManagedProcess) -> None:
    process = await _launch(managed)
    managed.keeper = asyncio.create_task(_keep(managed, process), name=f"keep {managed.spec.name}")


async def _keep(managed: ManagedProcess, process: asyncio.subprocess.Process | None) -> None:
    """Restart the program whenever it ends, after a delay that doubles until it has run for a
    while."""
    clock = asyncio.get_running_loop().time
    delay_s = FIRST_DELAY_S
    while True:
        if process is not None:
            ready_at = clock()
            status = await process.wait()
            logger.warning("%s ended with status %s and is started again.", managed.spec.name, status)
            delay_s = FIRST_DELAY_S if clock() - ready_at > STABLE_AFTER_S else delay_s
        _kill_group(managed.process)
        managed.process = None
        managed.state = ProcessState.RESTARTING
        managed.num_restarts += 1
        await asyncio.sleep(delay_s)
        delay_s = min(delay_s * 2, MAX_DELAY_S)
        try:
            process = await _launch(managed)
        except (ProcessDidNotStart, OSError) as error:
            logger.warning("%s", error)
            process = None


async def _launch(managed: ManagedProcess) -> asyncio.subprocess.Process:
    """Start the program and return when it answers; kill it if it does not."""
    managed.spec.before_start()
    process = managed.process = await _spawn_logged(managed)
    try:
        await _until_ready(managed, process)
    except ProcessDidNotStart:
        _kill_group(process)
        await process.wait()
        raise
    managed.state = ProcessState.READY
    return process


async def _end(managed: ManagedProcess) -> None:
    if managed.keeper is not None:
        managed.keeper.cancel()
        # The keeper's own cancellation, requested on the line above.
        with contextlib.suppress(asyncio.CancelledError):
            await managed.keeper
    if managed.process is not None:
        await _terminate(managed.process, managed.spec)
    if managed.output is not None:
        await managed.output.wait_closed(timeout_s=LAST_WORDS_S)  # a grandchild may keep the pipe open longer
        managed.output.close()
    managed.state = ProcessState.STOPPED
    managed.log.close()


async def _spawn(spec: ProcessSpec, *, stdout: int, stderr: int) -> asyncio.subprocess.Process:
    command = wrapped(spec.command, identity=spec.identity, death_signal=spec.death_signal)
    return await asyncio.create_subprocess_exec(
        *command,
        env=dict(spec.env),
        cwd=spec.cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        pass_fds=spec.pass_fds,
    )


async def _spawn_logged(managed: ManagedProcess) -> asyncio.subprocess.Process:
    # Our own pipe: with asyncio's, `wait` would block while a grandchild has the other end open.
    read_end, write_end = os.pipe()
    try:
        process = await _spawn(managed.spec, stdout=write_end, stderr=asyncio.subprocess.STDOUT)
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    if managed.output is not None:
        managed.output.close()
    managed.output = PipeReader(read_end, managed.log.write)
    return process


async def _until_ready(managed: ManagedProcess, process: asyncio.subprocess.Process) -> None:
    spec = managed.spec
    deadline_at = asyncio.get_running_loop().time() + spec.ready_timeout_s
    while not await spec.ready():
        if process.returncode is not None:
            raise ProcessDidNotStart(
                f"{spec.name} ended with status {process.returncode} while starting: {_reason(managed)}"
            )
        if asyncio.get_running_loop().time() > deadline_at:
            raise ProcessDidNotStart(
                f"{spec.name} did not answer within {spec.ready_timeout_s:g} s: {_reason(managed)}"
            )
        await asyncio.sleep(PROBE_INTERVAL_S)


def _reason(managed: ManagedProcess) -> str:
    return f"{_last_line(log_tail(managed.log.path).encode())} (see {managed.log.path})"


def _failure(name: str, status: int | None, last: str) -> str:
    """Return a command's message for people, which Django marks; else its name, status and last line."""
    _, mark, sentence = last.partition("CommandError: ")
    return sentence if mark else f"{name} ended with status {status}: {last}"


def _last_line(output: bytes) -> str:
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it printed nothing"


async def _terminate(process: asyncio.subprocess.Process, spec: ProcessSpec) -> None:
    if process.returncode is None:
        # It may end between the check and the signal.
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(spec.stop_signal)
        try:
            async with asyncio.timeout(spec.stop_timeout_s):
                await process.wait()
        except TimeoutError:
            logger.warning("%s did not stop within %g s and is killed.", spec.name, spec.stop_timeout_s)
    _kill_group(process)
    await process.wait()


def _kill_group(process: asyncio.subprocess.Process | None) -> None:
    """Kill the processes that the child left behind in its process group (it was started as a group leader)."""
    if process is not None:
        # Usually the group is already empty.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def run_to_end(main: Coroutine[None, None, Result]) -> Result | None:
    """Run `main` in its own event loop; returns None if a signal ended it.

    The first SIGINT, SIGTERM or SIGHUP cancels it, so that its `async with` blocks end the
    children. Later signals have no effect, because stopping has its own deadlines.
    """

    async def watched() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.create_task(main)
        is_stopping = False

        def stop() -> None:
            nonlocal is_stopping
            if not is_stopping:
                is_stopping = True
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop)
        return await task

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        return None
