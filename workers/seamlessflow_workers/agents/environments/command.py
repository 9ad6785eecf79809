"""Any program as an agent: it is started once per session, and its last line of JSON with a `reward` is the outcome.

The program gets OPENAI_BASE_URL and OPENAI_API_KEY (or the variables by which clients of Anthropic and of Gemini find
the same policy) and SEAMLESSFLOW_TASK (JSON) in its environment and runs in its own
empty folder, which is removed afterwards; if the runner is root, as a user that no other session has. Invariant: when
`run` returns or is cancelled, the program and every process that it started are gone, including those that left its
session (`agents.keeper`); they also end with this process. What a program prints is the output of its session.
"""

import asyncio
import contextlib
import json
import logging
import math
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from seamlessflow.core.environment.episodes import BrokenEpisode, Outcome, PolicyEndpoint, Task
from seamlessflow.core.environment.output import key_hide, output_stream
from seamlessflow.core.environment.stages import Stage, stage
from seamlessflow.core.extensions.declarations import EnvironmentContext
from seamlessflow.runtime.pipe_reader import PipeReader
from seamlessflow_workers.agents import keeper
from seamlessflow_workers.agents.given import folders_named, private_size_mb
from seamlessflow_workers.agents.keeper.order import Order
from seamlessflow_workers.agents.starts import Starts
from seamlessflow_workers.agents.users import session_user
from seamlessflow_workers.process.environment import EPISODES_VARIABLE, agent_environment

KEEPER = Path(keeper.__file__).with_name("main.py")
KEEPER_GRACE_S = 5.0
OUTPUT_TAIL_BYTES = 65_536  # of standard output, in which the outcome is searched
ERROR_TAIL_BYTES = 4_096
SHOWN_CHARACTERS = 500
CLOSE_GRACE_S = 1.0

_ERROR = re.compile(r"(?=\S).*(error|exception|fatal|panic)", re.IGNORECASE)  # not in an indented line

logger = logging.getLogger(__name__)


class _Report(msgspec.Struct, frozen=True):
    reward: float
    metrics: dict[str, float] = {}


class CommandEnvironment:
    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._private_mb = private_size_mb(os.environ)
        self._starts = Starts()

    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        with (
            contextlib.closing(_Tail(OUTPUT_TAIL_BYTES)) as output,
            contextlib.closing(_Tail(ERROR_TAIL_BYTES)) as errors,
        ):
            code = await self._run_to_end(task, policy, output, errors)
            await asyncio.gather(output.wait_closed(), errors.wait_closed())
            texts = (key_hide(tail.data, policy.api_key) for tail in (output, errors))
            return _outcome(Path(self._command[0]).name, code, *texts)

    async def _run_to_end(self, task: Task, policy: PolicyEndpoint, output: "_Tail", errors: "_Tail") -> int:
        async with contextlib.AsyncExitStack() as stack:

            async def start() -> asyncio.subprocess.Process:
                process = await self._start(folder, variables, user_id, output=output, errors=errors)
                stack.push_async_callback(_end, process)
                return process

            with stage(Stage.SETUP):
                user_id = await stack.enter_async_context(session_user())
                folder = stack.enter_context(_own_folder(user_id))
                variables = _variables(task, policy, folder, user_id)
                process = await self._starts.start(start, sign=lambda: _first_sign(output, errors))
            return await process.wait()

    async def close(self) -> None:
        """Do nothing: sessions have nothing in common."""

    async def _start(
        self,
        folder: str,
        variables: Mapping[str, str],
        user_id: int | None,
        *,
        output: "_Tail",
        errors: "_Tail",
    ) -> asyncio.subprocess.Process:
        exposed = () if user_id is None else (sys.prefix, sys.base_prefix)
        order = Order(
            parent_pid=os.getpid(),
            cores=sorted(os.sched_getaffinity(0)),
            user_id=user_id,
            exposed=exposed,
            kept=(*exposed, *folders_named(self._command, variables)),
            private_mb=self._private_mb,
        )
        try:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(KEEPER), order.encode()),
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.write_end,
                stderr=errors.write_end,
                cwd=folder,
                env=variables,
                start_new_session=True,
            )
        except OSError as error:
            raise BrokenEpisode(f"the keeper of {self._command[0]} could not be started: {error}") from error
        finally:
            output.close_write_end()
            errors.close_write_end()


def create(context: EnvironmentContext) -> CommandEnvironment:
    return CommandEnvironment(context.section.command)


class _Tail:
    """Keeps the last bytes that came through a pipe, and hands all of them to the log of the session.

    It replaces asyncio's own pipes, with which waiting for a process also waits for others that inherited its output.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.data = b""
        self.has_data = asyncio.Event()
        read_end, self.write_end = os.pipe()
        self._is_write_end_open = True
        self._write = output_stream()
        self._reader = PipeReader(read_end, self._take)

    def close_write_end(self) -> None:
        if self._is_write_end_open:
            self._is_write_end_open = False
            os.close(self.write_end)

    def close(self) -> None:
        self.close_write_end()
        self._reader.close()

    async def wait_closed(self) -> None:
        """Wait for its end, but not long: a process that left the group may keep the pipe open."""
        await self._reader.wait_closed(timeout_s=CLOSE_GRACE_S)

    def _take(self, data: bytes) -> None:
        self.data = (self.data + data)[-self._limit_bytes :]
        self._write(data)
        self.has_data.set()


async def _first_sign(output: _Tail, errors: _Tail) -> None:
    """Wait until the program says something or ends."""
    signs = (output.has_data.wait(), errors.has_data.wait(), output.wait_closed())
    waiting = [asyncio.ensure_future(sign) for sign in signs]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


@contextlib.contextmanager
def _own_folder(user_id: int | None) -> Iterator[str]:
    with tempfile.TemporaryDirectory(
        prefix="seamlessflow-episode-",
        dir=os.environ.get(EPISODES_VARIABLE) or None,
        ignore_cleanup_errors=True,
    ) as folder:
        if user_id is not None:
            os.chown(folder, user_id, user_id)
        yield folder


def _variables(task: Task, policy: PolicyEndpoint, folder: str, user_id: int | None) -> dict[str, str]:
    # Another user has no access to the folders where the supervisor's programs keep their files.
    own = (
        {}
        if user_id is None
        else {"HOME": folder, "TMPDIR": folder, "USER": str(user_id), "LOGNAME": str(user_id)}
    )
    return {
        **agent_environment(os.environ),
        **own,
        "OPENAI_BASE_URL": policy.base_url,
        "OPENAI_API_KEY": policy.api_key,
        "ANTHROPIC_BASE_URL": policy.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": policy.api_key,
        "GOOGLE_GEMINI_BASE_URL": policy.base_url.removesuffix("/v1"),
        "GEMINI_API_KEY": policy.api_key,
        "SEAMLESSFLOW_TASK": msgspec.json.encode(task).decode(),
    }


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask the keeper to end the program and all that it started, which takes milliseconds unless it was stopped."""
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
        process.terminate()
    with contextlib.suppress(TimeoutError):  # then it is killed below
        async with asyncio.timeout(KEEPER_GRACE_S):
            await process.wait()
            return
    logger.warning("the keeper of an agent program (process %d) did not end and is killed", process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _outcome(program: str, code: int, output: bytes, errors: bytes) -> Outcome:
    if code != 0:
        ending = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        raise BrokenEpisode(f"{program} {ending}: {_shown(errors or output)}")
    for line in reversed(output.splitlines()):
        with contextlib.suppress(ValueError, RecursionError):  # an ordinary line of output
            report = json.loads(line)  # accepts NaN and the like, which are refused below rather than ignored
            if isinstance(report, dict) and "reward" in report:
                return _checked(program, report, line)
    raise BrokenEpisode(f"{program} printed no JSON line with a number 'reward': {_shown(output or errors)}")


def _checked(program: str, raw: dict[str, Any], line: bytes) -> Outcome:
    try:
        report = msgspec.convert(raw, _Report)
    except msgspec.ValidationError as error:
        raise BrokenEpisode(
            f"{program} printed no JSON line with a number 'reward': {_shown(line)} ({error})"
        ) from error
    for name, value in report.metrics.items():
        if not math.isfinite(value):
            raise BrokenEpisode(f"{program} printed metrics.{name}: {value}; accepted: finite numbers")
    return Outcome(report.reward, metrics=report.metrics)


def _shown(tail: bytes) -> str:
    """Return the last line that names an error, or else the last one; the log of the session has them all.

    Where a program crashes, its last line may be of its runtime, such as `Node.js v22.1.0`.
    """
    lines = [line for line in tail.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    return (errors or lines or ["it printed nothing"])[-1].strip()[:SHOWN_CHARACTERS]
