"""The helper processes of a gateway, which make prompts within limits of time, memory and output.

`PromptHelpers` takes an `AskedPrompt` and returns its `Prompt`, or raises a `PromptRefused` that names the limit.
Invariants: the event loop never runs a template; a request that exceeds a limit fails alone; the number of helpers and
their queue are bounded; a dead helper is replaced at the next request; no helper outlives the gateway.
"""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import msgspec

from seamlessflow.data_plane.errors import ApiError, bad_request
from seamlessflow.data_plane.turns.rendering.helper import LENGTH, HelperOutcome, HelperReply
from seamlessflow.data_plane.turns.rendering.prompt import AskedPrompt, Prompt
from seamlessflow.data_plane.turns.rendering.waiting_line import WaitingLine
from seamlessflow.runtime.tasks import task_supervised

log = logging.getLogger(__name__)

MAX_WAITING = 4096
NUM_TRIES = 2  # a helper may have been killed for another reason
LOOK_S = 0.25
SUSPICIOUS_CPU_S = 1.0
WALL_FACTOR = (
    6  # processor time is the fair measure on a busy machine; wall time is limited to this multiple of it
)
MODULE = "seamlessflow.data_plane.turns.rendering.helper"
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class HelperLimits:
    """The limits of one request: processor time, and memory beyond what the model's own files take."""

    num_helpers: int = 2
    cpu_s: float = 10.0
    memory_mb: int = 1024


class PromptRefused(ApiError):
    """The prompt could not be made within the limits (422), or the template refused the messages (400)."""

    def __init__(self, message: str, code: str) -> None:
        is_refused = code == HelperOutcome.REFUSED
        status = HTTPStatus.BAD_REQUEST if is_refused else HTTPStatus.UNPROCESSABLE_ENTITY
        super().__init__(status, message, param="messages", code=None if is_refused else code)


@dataclass(slots=True)
class _Work:
    asked: AskedPrompt
    answer: "asyncio.Future[Prompt]"
    num_tries: int = 0


class _HelperGone(Exception):
    """The helper died while it worked on a request."""


@dataclass(slots=True)
class _Helper:
    """One helper process and the request it works on."""

    process: asyncio.subprocess.Process
    job: Hashable = None
    num_requests: int = 0
    is_busy: bool = False
    is_tokenising: bool = False
    has_overrun: bool = False
    # The request's number, the processor time and the clock when the watch first saw the request.
    seen: tuple[int, float, float] = field(default=(0, 0.0, 0.0))

    async def ask(self, job: Hashable, body: bytes) -> HelperReply:
        """Return the helper's reply to one request. Raises _HelperGone."""
        self.job, self.num_requests, self.is_busy, self.is_tokenising = (
            job,
            self.num_requests + 1,
            True,
            False,
        )
        reader, writer = self.process.stdout, self.process.stdin
        assert reader is not None
        assert writer is not None
        try:
            writer.write(LENGTH.pack(len(body)) + body)
            await writer.drain()
            while True:
                size = LENGTH.unpack(await reader.readexactly(LENGTH.size))[0]
                reply = msgspec.msgpack.decode(await reader.readexactly(size), type=HelperReply)
                if reply.outcome is not HelperOutcome.TOKENISING:
                    return reply
                self.is_tokenising = True
        except (OSError, asyncio.IncompleteReadError) as error:
            raise _HelperGone from error
        finally:
            self.is_busy = False

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class PromptHelpers:
    """One per gateway; `start` it before use. A helper process starts with the first request that needs it."""

    def __init__(self, limits: HelperLimits) -> None:
        self._limits = limits
        self._line: WaitingLine[_Work] = WaitingLine(num_helpers=limits.num_helpers)
        self._idle: list[
            asyncio.Future[None]
        ] = []  # the helper that was busy last is taken first: it is warm
        self._helpers: dict[int, _Helper] = {}

    def start(self) -> "list[asyncio.Task[None]]":
        """Start the tasks that run the helpers until they are cancelled."""
        keepers = [
            task_supervised(self._keep(number), name=f"prompt helper {number}")
            for number in range(self._limits.num_helpers)
        ]
        return [*keepers, task_supervised(self._watch(), name="prompt helpers' limits")]

    async def prompt(self, job: Hashable, asked: AskedPrompt) -> Prompt:
        """Make a prompt. Raises ApiError: PromptRefused, and 503 when too many requests wait."""
        if len(self._line) >= MAX_WAITING:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "Too many requests are waiting for their prompts to be rendered; try again.",
                code="overloaded",
                headers={"retry-after": "1"},
            )
        work = _Work(asked, asyncio.get_running_loop().create_future())
        self._put(job, work)
        return await work.answer

    def _put(self, job: Hashable, work: _Work, *, is_first: bool = False) -> None:
        self._line.put(job, work, is_first=is_first)
        self._wake()

    def _wake(self) -> None:
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():
                waiting.set_result(None)
                return

    async def _keep(self, number: int) -> None:
        """Serve one request after another with one helper process, which is started when it is needed."""
        try:
            while True:
                while (taken := self._line.take(time.monotonic())) is None:
                    self._idle.append(waiting := asyncio.get_running_loop().create_future())
                    await waiting
                job, work = taken
                try:
                    if not work.answer.done():  # its client may have disconnected
                        await self._serve(number, job, work)
                finally:
                    self._line.done(job)
                    self._wake()  # another job may have waited for this one
        finally:
            if helper := self._helpers.pop(number, None):
                helper.kill()

    async def _serve(self, number: int, job: Hashable, work: _Work) -> None:
        work.num_tries += 1
        try:
            helper = self._helpers.get(number) or await self._spawn(number)
            reply = await helper.ask(job, work.asked.body)
        except _HelperGone:
            self._gone(number, job, work)
            return
        except OSError as error:
            message = f"The gateway could not start a process that renders prompts: {error}."
            _resolve(work, ApiError(HTTPStatus.SERVICE_UNAVAILABLE, message))
            return
        if reply.outcome is HelperOutcome.OUT_OF_MEMORY:
            self._drop(number)
        self._answer(work, reply)

    def _answer(self, work: _Work, reply: HelperReply) -> None:
        match reply.outcome:
            case HelperOutcome.DONE if reply.prompt is not None:
                _resolve(work, reply.prompt)
            case HelperOutcome.REFUSED:
                _resolve(
                    work, PromptRefused(f"The messages cannot be rendered: {reply.message}.", reply.outcome)
                )
            case HelperOutcome.GUIDE_REFUSED:
                field = work.asked.demand_field
                _resolve(work, bad_request(f"{field} cannot be followed: {reply.message}.", param=field))
            case HelperOutcome.OUT_OF_MEMORY:
                message = (
                    f"Rendering the messages took more than {self._limits.memory_mb} MiB of memory, the limit of "
                    "this gateway."
                )
                _resolve(work, PromptRefused(message, reply.outcome))
            case _:
                _resolve(work, PromptRefused(f"The messages cannot be used: {reply.message}.", reply.outcome))

    def _gone(self, number: int, job: Hashable, work: _Work) -> None:
        """Refuse the request if it exceeded a limit; if the helper died for another reason, try once more."""
        helper = self._helpers.get(number)
        self._drop(number)
        if helper is not None and helper.has_overrun:
            is_text = helper.is_tokenising
            what = (
                "Tokenising the messages"
                if is_text
                else "Rendering the messages with the model's chat template"
            )
            message = f"{what} took more than {self._limits.cpu_s:g} s of processor time, the limit of this gateway."
            _resolve(work, PromptRefused(message, "text_too_long" if is_text else "template_too_slow"))
        elif work.num_tries < NUM_TRIES:
            self._line.put(job, work, is_first=True)
        else:
            message = "The process that rendered the messages died, most likely because memory ran out."
            _resolve(work, PromptRefused(message, HelperOutcome.OUT_OF_MEMORY))

    async def _spawn(self, number: int) -> _Helper:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", MODULE, str(os.getpid()), str(self._limits.memory_mb)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        helper = self._helpers[number] = _Helper(process)
        return helper

    def _drop(self, number: int) -> None:
        if helper := self._helpers.pop(number, None):
            helper.kill()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for helper in list(self._helpers.values()):
                if helper.is_busy:
                    self._look(helper, time.monotonic())

    def _look(self, helper: _Helper, now_s: float) -> None:
        cpu_s = _cpu_s(helper.process.pid)
        number, cpu_before_s, began_s = helper.seen
        if number != helper.num_requests:
            helper.seen = (helper.num_requests, cpu_s, now_s)
            return
        used_s = cpu_s - cpu_before_s
        if used_s > SUSPICIOUS_CPU_S:
            self._line.suspect(helper.job, now_s)
        if used_s > self._limits.cpu_s or now_s - began_s > WALL_FACTOR * self._limits.cpu_s:
            log.warning("a prompt of job %s took too long; its helper process is killed", helper.job)
            helper.has_overrun = True
            helper.kill()


def _resolve(work: _Work, answer: Prompt | ApiError) -> None:
    if work.answer.done():
        return  # its client disconnected
    if isinstance(answer, Prompt):
        work.answer.set_result(answer)
    else:
        work.answer.set_exception(answer)


def _cpu_s(pid: int) -> float:
    """Return the processor time of a process; 0 once the process is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS
