"""Takes the ends of sessions that runners report: any number in one transaction under their groups' locks.

The job's lock is not needed: sessions end in bursts, and only those of the same groups must wait for one another. A
repeated end changes nothing, nor does the end of an abandoned session; another outcome of a closed session is refused.
A fault in one end refuses that end alone.
"""

from collections.abc import Sequence
from http import HTTPStatus
from uuid import UUID

import psycopg

from seamlessflow.core.lifecycle.groups import GroupState, SessionState
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.data_plane import SessionFinish
from seamlessflow.core.types.rewards import reward_problem
from seamlessflow.data_plane.errors import ApiError, bad_request
from seamlessflow.data_plane.groups.finalization import GroupNews, groups_finalize
from seamlessflow.data_plane.groups.outcomes import outcome_refusal
from seamlessflow.data_plane.store.connection import Pool
from seamlessflow.data_plane.store.events import outcome_refused_event
from seamlessflow.data_plane.store.groups.finalization import groups_lock
from seamlessflow.data_plane.store.jobs import phase_require_live
from seamlessflow.data_plane.store.turns.sessions import (
    SessionOutcome,
    SessionRow,
    sessions_end,
    sessions_read,
)
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry

MAX_METRIC_CHARS = 120

Refusals = dict[UUID, ApiError]


class RunnerOutcomes:
    def __init__(self, pool: Pool, registry: Registry, news: GroupNews) -> None:
        self._pool = pool
        self._registry = registry
        self._news = news

    async def take(self, claims: PhaseClaims, finishes: Sequence[SessionFinish]) -> Refusals:
        """Store how episodes ended. Raises ApiError (409) for a phase that is over."""
        job = await self._registry.job(claims.job_id)
        refused = {finish.session_id: _bad_metrics() for finish in finishes if _has_bad_metrics(finish)}
        for finish in finishes:
            if finish.reward is not None and (problem := reward_problem(finish.reward)):
                refused[finish.session_id] = bad_request(f"{problem}.", param="reward")
        outcomes = {
            finish.session_id: _outcome(finish) for finish in finishes if finish.session_id not in refused
        }
        if outcomes:
            refused |= await self._take_all(claims, job, outcomes)
        for session_id in outcomes.keys() - refused.keys():
            self._registry.close(session_id)
        return refused

    async def _take_all(
        self, claims: PhaseClaims, job: LiveJob, outcomes: dict[UUID, SessionOutcome]
    ) -> Refusals:
        try:
            return await self._store(claims, job, outcomes)
        except psycopg.DataError:
            if len(outcomes) == 1:
                raise
        refused: Refusals = {}
        for session_id, outcome in outcomes.items():  # one of them is at fault; the others are not to suffer
            try:
                refused |= await self._store(claims, job, {session_id: outcome})
            except psycopg.DataError as error:
                reason = str(error).partition("\n")[0]
                refused[session_id] = bad_request(f"A value of the report cannot be stored: {reason}.")
        return refused

    async def _store(
        self, claims: PhaseClaims, job: LiveJob, outcomes: dict[UUID, SessionOutcome]
    ) -> Refusals:
        finalized: dict[UUID, GroupState] = {}
        refused: Refusals = {}
        async with self._pool.connection() as connection, connection.transaction():
            known = await sessions_read(connection, list(outcomes))
            own = {key: row for key, row in known.items() if row.job_id == claims.job_id}
            is_open = {key: row for key, row in own.items() if row.state is SessionState.OPEN}
            for key in [key for key, row in own.items() if _contradicts(outcomes[key], row)]:
                await outcome_refused_event(connection, own[key], refused=_said(outcomes[key]))
                refused[key] = outcome_refusal(own[key])
            if is_open:
                await phase_require_live(connection, claims)
                locked = await groups_lock(connection, list({row.group_id for row in is_open.values()}))
                if await sessions_end(connection, {key: outcomes[key] for key in is_open}):
                    finalized = await groups_finalize(connection, locked, job.spec)
        self._news.tell(claims.job_id, finalized.values())
        return refused | {session_id: _unknown() for session_id in outcomes.keys() - own.keys()}


def _contradicts(outcome: SessionOutcome, row: SessionRow) -> bool:
    """Return whether a report contradicts the outcome of a closed session; a requeued session names no outcome."""
    return row.state is SessionState.CLOSED and not outcome.is_requeued and outcome.reward != row.reward


def _said(outcome: SessionOutcome) -> str:
    return "a failure" if outcome.reward is None else f"a reward of {outcome.reward:g}"


def _unknown() -> ApiError:
    return ApiError(HTTPStatus.NOT_FOUND, "There is no such session in this job.")


def _bad_metrics() -> ApiError:
    message = f"Names in metrics have at most {MAX_METRIC_CHARS} characters and no NUL."
    return bad_request(message, param="metrics")


def _has_bad_metrics(finish: SessionFinish) -> bool:
    return any("\0" in name or len(name) > MAX_METRIC_CHARS for name in finish.metrics)


def _outcome(finish: SessionFinish) -> SessionOutcome:
    return SessionOutcome(
        reward=0.0 if finish.is_timeout and finish.reward is None else finish.reward,
        reason=(finish.failure or "").replace("\0", "\ufffd"),  # text columns hold no NUL
        is_timeout=finish.is_timeout,
        is_requeued=finish.is_requeued and finish.reward is None and not finish.is_timeout,
        metrics=finish.metrics,
    )
