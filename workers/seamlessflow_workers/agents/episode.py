"""Runs one session in its environment and returns how it ended.

Whatever an agent does becomes a `SessionFinish`: an outcome, the task's own timeout (its meaning is the spec's
`environment.on_timeout`), or a failure with its kind. Invariant: only the agent's own time counts against the task.
Set-up, waits for services and grading have limits of their own, whose end is a failure; while the gateway does not
serve a turn of the session, and while this process itself is stopped, no clock goes on.
"""

import asyncio
import contextvars
import dataclasses
import logging
import math
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from uuid import UUID

import msgspec

from seamlessflow.core.environment.episodes import (
    BrokenEpisode,
    Environment,
    Outcome,
    PolicyEndpoint,
    Task,
)
from seamlessflow.core.environment.failures import FailureKind
from seamlessflow.core.environment.output import SessionOutput, key_hide, output_listen
from seamlessflow.core.environment.section import EnvironmentSection, OnTimeout
from seamlessflow.core.environment.stages import FAILURE_OF, Stage, stages_listen
from seamlessflow.core.protocol.data_plane import SessionFinish
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.rewards import number_read, reward_read
from seamlessflow_workers.agents.episode_clock import EpisodeClock
from seamlessflow_workers.clients.http import FencedOff, RequestRefused

MAX_FAILURE_CHARACTERS = 2000
LEAST_WAIT_S = 0.5  # between two requests for the time that a session waited

WaitedSeconds = Callable[[UUID], Awaitable[float]]
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EpisodeRules:
    """How long time may last that is not the agent's own, and the meaning of the end of the agent's own time."""

    limits_s: Mapping[Stage, float]
    on_timeout: OnTimeout

    @classmethod
    def of(cls, section: EnvironmentSection) -> "EpisodeRules":
        limits_s = {
            Stage.SETUP: section.setup_timeout_s,
            Stage.WAITING: section.waiting_timeout_s,
            Stage.GRADING: section.grading_timeout_s,
        }
        return cls(limits_s, section.on_timeout)


USUAL_RULES = EpisodeRules.of(EnvironmentSection(name="external"))


_FIELDS = {
    Stage.SETUP: ("the set-up", "environment.setup_timeout_s"),
    Stage.WAITING: ("a tool or service that the agent waited for", "environment.waiting_timeout_s"),
    Stage.GRADING: ("the grading", "environment.grading_timeout_s"),
}


async def run_episode(
    environment: Environment,
    task: Task,
    policy: PolicyEndpoint,
    *,
    session_id: UUID,
    timeout_s: float,
    waited_s: WaitedSeconds,
    rules: EpisodeRules = USUAL_RULES,
    output: SessionOutput | None = None,
) -> SessionFinish:
    """Run a session, whose output goes to `output`.

    `waited_s` returns how long its turns waited at the gateway; it is called only when time seems up.
    """
    clock = EpisodeClock({**rules.limits_s, Stage.AGENT: timeout_s})
    stages_listen(clock.stages)
    work = _start(environment.run(task, policy), output)
    finish = await _end(work, clock, session_id, rules, waited_s, output)
    if finish.failure is None:
        return finish
    failure = key_hide(finish.failure.encode("utf-8", "replace"), policy.api_key).decode()
    logger.warning("session %s failed: %s", show_id(IdKind.SESSION, session_id), failure)
    return msgspec.structs.replace(finish, failure=failure)


def _start(work: Coroutine[None, None, Outcome], output: SessionOutput | None) -> asyncio.Task[Outcome]:
    """Start the work of an environment. Its prints are output; the logs of this module are not."""
    context = contextvars.copy_context()
    context.run(output_listen, output)
    return asyncio.create_task(work, context=context)


async def _end(
    work: asyncio.Task[Outcome],
    clock: EpisodeClock,
    session_id: UUID,
    rules: EpisodeRules,
    waited_s: WaitedSeconds,
    output: SessionOutput | None,
) -> SessionFinish:
    try:
        if (late := await _late_stage(work, clock, session_id, waited_s)) is not None:
            return _late(session_id, late, rules)
        outcome = _read(work.result())
    except BrokenEpisode as error:
        return _failed(session_id, str(error), error.kind or _kind_of(clock))
    except Exception as error:
        if output is None:
            logger.warning("session %s failed", session_id, exc_info=True)
        else:
            output.write(traceback.format_exc().encode("utf-8", "replace"))
        return _failed(session_id, f"{type(error).__name__}: {error}", _kind_of(clock))
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    return _finish(session_id, outcome, rules)


def _read(outcome: Outcome) -> Outcome:
    """Return an outcome with plain numbers; metrics that are not finite say nothing. Raises BrokenEpisode."""
    try:
        metrics = {name: number_read(value) for name, value in outcome.metrics.items()}
        reward = reward_read(outcome.reward)
    except ValueError as error:
        raise BrokenEpisode(str(error)) from error
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    return dataclasses.replace(outcome, reward=reward, metrics=finite)


async def _late_stage(
    work: asyncio.Task[Outcome], clock: EpisodeClock, session_id: UUID, waited_s: WaitedSeconds
) -> Stage | None:
    """Return the stage whose time is up, not counting the time for which the session's turns waited at the gateway."""
    timeout_s = clock.limit_s(Stage.AGENT)
    while (late := await clock.late_stage(work)) is Stage.AGENT:
        limit_s = timeout_s + await _waited_so_far(session_id, waited_s)
        spent_s = clock.spent_s(Stage.AGENT)
        if spent_s >= limit_s:
            return None if work.done() else late
        clock.extend(Stage.AGENT, max(limit_s, spent_s + LEAST_WAIT_S))
    return late


async def _waited_so_far(session_id: UUID, waited_s: WaitedSeconds) -> float:
    try:
        return await waited_s(session_id)
    except (FencedOff, RequestRefused) as error:
        logger.warning(
            "the clock of session %s goes on, because the gateway did not report its waiting time: %s",
            session_id,
            error,
        )
        return 0.0


def _late(session_id: UUID, stage: Stage, rules: EpisodeRules) -> SessionFinish:
    if stage is Stage.AGENT:
        return _finish(session_id, Outcome(0.0, is_timeout=True), rules)
    what, field = _FIELDS[stage]
    reason = f"{what} did not end within {rules.limits_s[stage]:g} s ({field})"
    return _failed(session_id, reason, FAILURE_OF[stage])


def _finish(session_id: UUID, outcome: Outcome, rules: EpisodeRules) -> SessionFinish:
    if outcome.is_timeout and rules.on_timeout is not OnTimeout.ZERO:
        reason = f"the task's time was up (environment.on_timeout is {rules.on_timeout.value!r})"
        is_masked = rules.on_timeout is OnTimeout.MASK
        return _failed(session_id, reason, FailureKind.TIMEOUT, is_timeout=is_masked)
    return SessionFinish(
        session_id=session_id,
        reward=outcome.reward,
        is_timeout=outcome.is_timeout,
        metrics=dict(outcome.metrics),
    )


def _kind_of(clock: EpisodeClock) -> FailureKind:
    return FAILURE_OF[clock.stages.failed_in or Stage.AGENT]


def _failed(session_id: UUID, reason: str, kind: FailureKind, *, is_timeout: bool = False) -> SessionFinish:
    return SessionFinish(
        session_id=session_id,
        failure=reason[:MAX_FAILURE_CHARACTERS],
        failure_kind=kind,
        is_timeout=is_timeout,
    )
