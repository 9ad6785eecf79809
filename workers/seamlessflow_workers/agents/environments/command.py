"""Any program as an agent: started once per session, its last line of JSON with a `reward` is the verdict.

The program finds OPENAI_BASE_URL, OPENAI_API_KEY and SEAMLESSFLOW_TASK (JSON) in its environment and runs in an empty
folder of its own, which is removed afterwards. Invariant: when `run` returns or is cancelled, the program and every
process of its group are gone; they also die with this process.
"""

import asyncio
import contextlib
import json
import math
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from seamlessflow_workers.agents.environments.base import BrokenEpisode, PolicyEndpoint, Task, Verdict
from seamlessflow_workers.supervisor import launch

OUTPUT_TAIL_BYTES = 65_536  # of standard output, where the verdict is looked for
ERROR_TAIL_BYTES = 4_096
SHOWN_CHARACTERS = 500
CLOSE_GRACE_S = 1.0


class _Report(msgspec.Struct, frozen=True):
    reward: float
    metrics: dict[str, float] = {}


class CommandEnvironment:
    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)

    async def run(self, task: Task, policy: PolicyEndpoint) -> Verdict:
        async with _tail_pipe(OUTPUT_TAIL_BYTES) as output, _tail_pipe(ERROR_TAIL_BYTES) as errors:
            with tempfile.TemporaryDirectory(
                prefix="seamlessflow-episode-", ignore_cleanup_errors=True
            ) as folder:
                process = await self._start(folder, _variables(task, policy), output=output, errors=errors)
                try:
                    code = await process.wait()
                finally:
                    _kill_group(process.pid)
                    await process.wait()
            await _until_closed(output, errors)
            return _verdict(self._command[0], code, output.data, errors.data)

    async def close(self) -> None:
        """Nothing is shared between sessions."""

    async def _start(
        self, folder: str, variables: Mapping[str, str], *, output: "_Tail", errors: "_Tail"
    ) -> asyncio.subprocess.Process:
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        launcher = (sys.executable, "-I", "-S", str(Path(launch.__file__)), str(os.getpid()), cores)
        try:
            return await asyncio.create_subprocess_exec(
                *launcher,
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.write_end,
                stderr=errors.write_end,
                cwd=folder,
                env=variables,
                start_new_session=True,
            )
        except OSError as error:
            raise BrokenEpisode(f"{self._command[0]} could not be started: {error}") from error
        finally:
            output.close_write_end()
            errors.close_write_end()


class _Tail(asyncio.Protocol):
    """Keeps the last bytes that came through a pipe.

    Not asyncio's own pipes: with those, waiting for a process also waits for whoever inherited its output.
    """

    def __init__(self, limit_bytes: int, write_end: int) -> None:
        self._limit_bytes = limit_bytes
        self.data = b""
        self.write_end: int | None = write_end
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.data = (self.data + data)[-self._limit_bytes :]

    def connection_lost(self, _: Exception | None) -> None:
        self.closed.set()

    def close_write_end(self) -> None:
        if self.write_end is not None:
            os.close(self.write_end)
            self.write_end = None


@contextlib.asynccontextmanager
async def _tail_pipe(limit_bytes: int) -> AsyncIterator[_Tail]:
    read_end, write_end = os.pipe()
    tail = _Tail(limit_bytes, write_end)
    reading = os.fdopen(read_end, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: tail, reading)
    try:
        yield tail
    finally:
        tail.close_write_end()
        transport.close()


async def _until_closed(*tails: _Tail) -> None:
    with contextlib.suppress(TimeoutError):  # a process that left the group keeps the pipe open
        async with asyncio.timeout(CLOSE_GRACE_S):
            for tail in tails:
                await tail.closed.wait()


def _variables(task: Task, policy: PolicyEndpoint) -> dict[str, str]:
    return {
        **os.environ,
        "OPENAI_BASE_URL": policy.base_url,
        "OPENAI_API_KEY": policy.api_key,
        "SEAMLESSFLOW_TASK": msgspec.json.encode(task).decode(),
    }


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # the whole group has ended by itself
        os.killpg(leader, signal.SIGKILL)


def _verdict(program: str, code: int, output: bytes, errors: bytes) -> Verdict:
    if code != 0:
        ending = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        raise BrokenEpisode(f"{program} {ending}: {_shown(errors or output)}")
    for line in reversed(output.splitlines()):
        with contextlib.suppress(ValueError, RecursionError):  # an ordinary line of output
            said = json.loads(
                line
            )  # numbers that are none, as NaN, as well: they are refused, not passed over
            if isinstance(said, dict) and "reward" in said:
                return _checked(program, said, line)
    raise BrokenEpisode(f"{program} printed no JSON line with a number 'reward': {_shown(output or errors)}")


def _checked(program: str, said: dict[str, Any], line: bytes) -> Verdict:
    try:
        report = msgspec.convert(said, _Report)
    except msgspec.ValidationError as error:
        raise BrokenEpisode(
            f"{program} printed no JSON line with a number 'reward': {_shown(line)} ({error})"
        ) from error
    for name, value in report.metrics.items():
        if not math.isfinite(value):
            raise BrokenEpisode(f"{program} printed metrics.{name}: {value}; accepted: finite numbers")
    return Verdict(report.reward, metrics=report.metrics)


def _shown(tail: bytes) -> str:
    text = tail.decode("utf-8", "replace").strip()
    return text[-SHOWN_CHARACTERS:] or "it printed nothing"
