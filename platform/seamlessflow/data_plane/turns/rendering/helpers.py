"""The helper processes of a gateway, which make prompts within limits of time, memory and output.

`PromptHelpers` takes an `AskedPrompt` and returns its `Prompt`, or raises a `PromptRefused` that names the limit.
Invariants: the event loop never runs a template; a request that exceeds a limit fails alone; the number of helpers and
their queue are bounded; a dead helper is replaced at the next request; no helper outlives the gateway. Quick prompts
follow one another in a helper's pipe (`helper_process`), but none waits behind a slow one.
"""

import asyncio
import logging
import os
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from seamlessflow.data_plane.errors import ApiError, ContextTooLong, bad_request
from seamlessflow.data_plane.turns.rendering.helper import HelperOutcome, HelperReply
from seamlessflow.data_plane.turns.rendering.helper_process import HelperProcess, Work
from seamlessflow.data_plane.turns.rendering.prompt import AskedPrompt, Prompt, TailNotEnough
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
SLOW_CPU_S = 0.2  # after that, what waits behind a prompt goes to another helper
START_AGAIN_S = 1.0  # after a helper could not be started, if there are others
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class HelperLimits:
    """The limits of one request: processor time, and memory beyond that of the model's own files."""

    num_helpers: int = 2
    cpu_s: float = 10.0
    memory_mb: int = 1024


class PromptRefused(ApiError):
    """The prompt could not be made within the limits (422), or the template refused the messages (400)."""

    def __init__(self, message: str, code: str) -> None:
        is_refused = code == HelperOutcome.REFUSED
        status = HTTPStatus.BAD_REQUEST if is_refused else HTTPStatus.UNPROCESSABLE_ENTITY
        super().__init__(status, message, param="messages", code=None if is_refused else code)


class PromptHelpers:
    """One per gateway; `start` it before use. A helper process starts with the first request that needs it."""

    def __init__(self, limits: HelperLimits) -> None:
        self._limits = limits
        self._line: WaitingLine[Work] = WaitingLine(num_helpers=limits.num_helpers)
        self._helpers: list[HelperProcess] = []  # the one that replied last is the last: it is warm
        self._closed: list[HelperProcess] = []  # the system may still know them
        self._starting: set[asyncio.Task[None]] = set()
        self._start_failed_at_s = -START_AGAIN_S

    def start(self) -> "list[asyncio.Task[None]]":
        """Start the task that keeps the limits until it is cancelled, and the helpers with it."""
        return [task_supervised(self._watch(), name="prompt helpers' limits")]

    async def prompt(self, job: Hashable, asked: AskedPrompt) -> Prompt:
        """Make a prompt. Raises TailNotEnough, and ApiError: PromptRefused, and 503 when too many requests wait."""
        if self._line.is_full(job, MAX_WAITING):
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "Too many requests are waiting for their prompts to be rendered; try again.",
                code="overloaded",
                headers={"retry-after": "1"},
            )
        work = Work(job, asked, asyncio.get_running_loop().create_future())
        self._line.put(job, work)
        self._feed()
        return await work.answer

    def _feed(self) -> None:
        """Send what waits to helpers with room."""
        now_s = time.monotonic()
        while len(self._line) and (helper := self._free_helper(now_s)) is not None:
            taken = self._line.take(now_s, has_suspects=not helper.under_way)
            if taken is None:
                return
            job, work = taken
            if work.answer.done():  # its client has disconnected
                self._line.done(job)
                continue
            if self._line.is_suspect(job, now_s):
                helper.is_slow = True  # nothing waits behind it
            helper.send(work)

    def _free_helper(self, now_s: float) -> HelperProcess | None:
        """Return an idle helper, or the least busy one with room; if none is idle, start a further one."""
        for helper in reversed(self._helpers):
            if not helper.under_way:
                return helper
        num_helpers = len(self._helpers) + len(self._starting)
        is_soon = bool(self._helpers) and now_s < self._start_failed_at_s + START_AGAIN_S
        if num_helpers < self._limits.num_helpers and not is_soon:
            self._start_another()
        with_room = [helper for helper in self._helpers if helper.has_room]
        return min(with_room, key=lambda helper: len(helper.under_way), default=None)

    def _start_another(self) -> None:
        task = task_supervised(self._start_one(), name="start of a prompt helper", may_return=True)
        self._starting.add(task)
        task.add_done_callback(self._started)

    def _started(self, task: "asyncio.Task[None]") -> None:
        self._starting.discard(task)
        self._feed()

    async def _start_one(self) -> None:
        helper = HelperProcess(self._replied, self._gone)
        try:
            await helper.start(self._limits.memory_mb)
            if helper.is_gone:
                raise ProcessLookupError("it ended at once")
        except OSError as error:
            self._start_failed_at_s = time.monotonic()
            log.warning("a process that renders prompts could not be started: %s", error)
            if not self._helpers:
                self._refuse_all(error)
            return
        self._helpers.append(helper)

    def _refuse_all(self, error: OSError) -> None:
        message = f"The gateway could not start a process that renders prompts: {error}."
        while (taken := self._line.take(time.monotonic())) is not None:
            job, work = taken
            self._line.done(job)
            _resolve(work, ApiError(HTTPStatus.SERVICE_UNAVAILABLE, message))

    def _replied(self, helper: HelperProcess, work: Work | None, reply: HelperReply) -> None:
        if work is not None:
            self._line.done(work.job)
            self._answer(work, reply)
        if helper is not self._helpers[-1]:
            self._helpers.remove(helper)
            self._helpers.append(helper)
        if reply.outcome is HelperOutcome.OUT_OF_MEMORY:
            helper.close()
            self._let_go(helper)
            self._put_back(list(helper.under_way))
        self._feed()

    def _put_back(self, works: Sequence[Work | None]) -> None:
        """Let works wait again, before all others of their jobs."""
        for work in reversed(works):
            if work is not None:
                self._line.done(work.job)
                self._line.put(work.job, work, is_first=True)

    def _answer(self, work: Work, reply: HelperReply) -> None:
        match reply.outcome:
            case HelperOutcome.DONE if reply.prompt is not None:
                _resolve(work, reply.prompt)
            case HelperOutcome.TAIL_NOT_ENOUGH:
                _resolve(work, TailNotEnough())
            case HelperOutcome.TEXT_TOO_LONG:
                _resolve(work, ContextTooLong(*reply.num_tokens))
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

    def _gone(self, helper: HelperProcess) -> None:
        """Blame the work that a dead helper was making; the works behind it wait again."""
        self._let_go(helper)
        first, others = next(iter(helper.under_way), None), list(helper.under_way)[1:]
        self._put_back(others)
        if first is not None:
            self._blame(helper, first)
        self._feed()

    def _let_go(self, helper: HelperProcess) -> None:
        """Give a helper that is closed no more work; the caller that stops us waits for its end."""
        if helper in self._helpers:
            self._helpers.remove(helper)
        self._closed = [one for one in self._closed if not one.has_ended] + [helper]

    def _blame(self, helper: HelperProcess, work: Work) -> None:
        """Refuse the work if it exceeded a limit; if the helper died for another reason, try once more."""
        work.num_deaths += 1
        if not helper.has_overrun and work.num_deaths < NUM_TRIES:
            self._put_back([work])
            return
        self._line.done(work.job)
        if not helper.has_overrun:
            message = "The process that rendered the messages died, most likely because memory ran out."
            _resolve(work, PromptRefused(message, HelperOutcome.OUT_OF_MEMORY))
            return
        is_text = helper.is_tokenising
        what = (
            "Tokenising the messages" if is_text else "Rendering the messages with the model's chat template"
        )
        message = (
            f"{what} took more than {self._limits.cpu_s:g} s of processor time, the limit of this gateway."
        )
        _resolve(work, PromptRefused(message, "text_too_long" if is_text else "template_too_slow"))

    async def _watch(self) -> None:
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                for helper in list(self._helpers):
                    if helper.under_way and not helper.is_gone:
                        self._look(helper, time.monotonic())
        finally:
            helpers, self._helpers = self._helpers, []
            for helper in helpers:
                helper.close()
            await asyncio.gather(*(helper.ended() for helper in (*helpers, *self._closed)))

    def _look(self, helper: HelperProcess, now_s: float) -> None:
        cpu_s = _cpu_s(helper.pid)
        number, cpu_before_s, began_s = helper.seen
        if number != helper.num_replies:
            helper.seen = (helper.num_replies, cpu_s, now_s)
            return
        used_s, elapsed_s, job = cpu_s - cpu_before_s, now_s - began_s, _job(helper)
        if used_s > SUSPICIOUS_CPU_S and job is not None:
            self._line.suspect(job, now_s)
        if used_s > self._limits.cpu_s or elapsed_s > WALL_FACTOR * self._limits.cpu_s:
            log.warning("a prompt of job %s took too long; its helper process is killed", job)
            helper.has_overrun = True
            helper.close()
            self._gone(helper)
        elif used_s > SLOW_CPU_S or elapsed_s > WALL_FACTOR * SLOW_CPU_S:
            helper.is_slow = True
            self._put_back(helper.take_back())
            self._feed()


def _job(helper: HelperProcess) -> Hashable:
    """Return whose work a helper makes; None if it is one that another helper makes too."""
    first = helper.under_way[0]
    return None if first is None else first.job


def _resolve(work: Work, answer: Prompt | ApiError | TailNotEnough) -> None:
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
