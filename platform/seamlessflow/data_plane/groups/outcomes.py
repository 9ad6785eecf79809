"""Takes the outcomes of sessions: of episodes, as runners report them, and of external sessions, as programs do.

Invariant: the outcome of a session never changes once the session is over. A repeated report changes nothing, nor does
one for a session that failed; a different outcome for a closed session is refused and leaves one event per session.
"""

from collections.abc import Sequence
from http import HTTPStatus
from uuid import UUID

import psycopg

from seamlessflow.core.environment.failures import FailureKind
from seamlessflow.core.environment.section import RewardBy
from seamlessflow.core.lifecycle.groups import GroupState, SessionState
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.data_plane import RewardReport, SessionFinish, SessionOver
from seamlessflow.core.types.ids import IdKind, parse_id, show_id
from seamlessflow.core.types.rewards import reward_problem
from seamlessflow.data_plane.errors import ApiError, bad_request
from seamlessflow.data_plane.groups.finalization import GroupNews, groups_finalize
from seamlessflow.data_plane.store.api_keys import KEY_PREFIX
from seamlessflow.data_plane.store.connection import Pool
from seamlessflow.data_plane.store.events import outcome_refused_event
from seamlessflow.data_plane.store.groups.finalization import groups_lock
from seamlessflow.data_plane.store.groups.group_rows import job_lock
from seamlessflow.data_plane.store.jobs import phase_require_live
from seamlessflow.data_plane.store.tokens import token_projects
from seamlessflow.data_plane.store.turns.sessions import (
    SessionOutcome,
    SessionRow,
    reward_note,
    session_lock,
    session_read,
    sessions_end,
    sessions_read,
)
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry

MAX_METRIC_CHARS = 120

Refusals = dict[UUID, ApiError]


class RunnerOutcomes:
    """Takes the ends of episodes, any number in one transaction under the locks of their groups.

    The job's lock is not needed: sessions end in bursts, and only those of the same group must wait for one another. A
    faulty report is refused alone.
    """

    def __init__(self, pool: Pool, registry: Registry, news: GroupNews) -> None:
        self._pool = pool
        self._registry = registry
        self._news = news

    async def take(self, claims: PhaseClaims, finishes: Sequence[SessionFinish]) -> Refusals:
        """Store how episodes ended and return the refusals by session. Raises ApiError (409) if the phase is over."""
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
            self._registry.close(session_id, is_resumed=outcomes[session_id].is_accident)
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
        for session_id, outcome in outcomes.items():  # one of them is at fault, and only that one is refused
            try:
                refused |= await self._store(claims, job, {session_id: outcome})
            except psycopg.DataError as error:
                reason = str(error).partition("\n")[0]
                refused[session_id] = bad_request(f"A value in the report cannot be stored: {reason}.")
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
        self._news.announce(claims.job_id, finalized.values())
        return refused | {session_id: _unknown() for session_id in outcomes.keys() - own.keys()}


def _contradicts(outcome: SessionOutcome, row: SessionRow) -> bool:
    """Return whether a report contradicts the outcome of a closed session; a requeued session reports no outcome."""
    return row.state is SessionState.CLOSED and not outcome.is_requeued and outcome.reward != row.reward


def _said(outcome: SessionOutcome) -> str:
    return "a failure" if outcome.reward is None else f"a reward of {outcome.reward:g}"


def _unknown() -> ApiError:
    return ApiError(HTTPStatus.NOT_FOUND, "There is no such session in this job.")


def _bad_metrics() -> ApiError:
    message = f"metrics: a name may have at most {MAX_METRIC_CHARS} characters and no NUL character."
    return bad_request(message, param="metrics")


def _has_bad_metrics(finish: SessionFinish) -> bool:
    return any("\0" in name or len(name) > MAX_METRIC_CHARS for name in finish.metrics)


def _outcome(finish: SessionFinish) -> SessionOutcome:
    return SessionOutcome(
        reward=_reward(finish),
        reason=(finish.failure or "").replace("\0", "\ufffd"),  # text columns hold no NUL
        is_timeout=finish.is_timeout,
        is_requeued=finish.is_requeued and finish.reward is None and not finish.is_timeout,
        failure=FailureKind.MACHINE if finish.is_requeued else finish.failure_kind,
        metrics=finish.metrics,
    )


def _reward(finish: SessionFinish) -> float | None:
    is_bare_timeout = finish.is_timeout and finish.reward is None and finish.failure is None
    return 0.0 if is_bare_timeout else finish.reward


class ExternalOutcomes:
    """Takes rewards and ends of external sessions, from programs with an API token of the project.

    A session's own key only opens the policy: an agent in training does not report its own reward, unless the job's
    spec has `environment.reward_by: session`.
    """

    def __init__(self, pool: Pool, registry: Registry, news: GroupNews) -> None:
        self._pool = pool
        self._registry = registry
        self._news = news

    async def gradable(self, token: str, text: str) -> SessionRow:
        """Return the session if the caller may reward and close it. Raises ApiError (400, 401, 403, 404)."""
        try:
            session_id = parse_id(IdKind.SESSION, text)
        except ValueError as error:
            raise bad_request(f"session: {error}.", param="session") from error
        own = await self._registry.session_by_key(token) if token.startswith(KEY_PREFIX) else None
        async with self._pool.connection() as connection:
            projects = {own.key.project_id} if own else await token_projects(connection, token)
            row = await session_read(connection, session_id)
        is_known = own is None or own.key.session_id == session_id
        if not is_known or row is None or row.project_id not in projects:
            raise ApiError(HTTPStatus.NOT_FOUND, "There is no such session.", code="session_not_found")
        _require_may_grade(await self._registry.job(row.job_id), is_own_key=own is not None)
        return row

    async def reward(self, row: SessionRow, report: RewardReport) -> SessionOver | None:
        """Store a reward, which becomes the outcome when the session is closed. Returns a reply if it failed before.

        Raises ApiError (409) if the session is closed with a different outcome.
        """
        if problem := reward_problem(report.reward):
            raise bad_request(f"{problem}.", param="reward")
        if report.branch is not None:
            raise _branch_refusal()
        refusal = None
        ttl_s = (await self._registry.job(row.job_id)).spec.environment.session_ttl_s
        async with self._pool.connection() as connection, connection.transaction():
            if await reward_note(connection, row.session_id, report.reward, ttl_s=ttl_s):
                return None
            now = await session_read(connection, row.session_id)
            assert now is not None
            if now.state is SessionState.CLOSED and now.reward != report.reward:
                await outcome_refused_event(connection, now, refused=f"a reward of {report.reward:g}")
                refusal = outcome_refusal(now)
        if refusal is not None:
            raise refusal
        if now.state is SessionState.FAILED:
            shown = show_id(IdKind.SESSION, row.session_id)
            return SessionOver(session=shown, state=now.state.value, reason=now.reason)
        return None

    async def close(self, session: SessionRow) -> None:
        """End a session: its reward becomes its outcome; without one it fails. Repeating the call changes nothing."""
        job = await self._registry.job(session.job_id)
        finalized: dict[UUID, GroupState] = {}
        async with self._pool.connection() as connection, connection.transaction():
            await job_lock(connection, session.job_id)
            locked = await groups_lock(connection, [session.group_id])
            row = await session_lock(connection, session.session_id)
            reason = "" if row.reward is not None else "closed without a reward"
            if await sessions_end(connection, {row.session_id: SessionOutcome(row.reward, reason)}):
                finalized = await groups_finalize(connection, locked, job.spec)
        self._news.announce(session.job_id, finalized.values())
        self._registry.close(session.session_id)


def _require_may_grade(job: LiveJob, *, is_own_key: bool) -> None:
    """Raises ApiError (403)."""
    environment = job.spec.environment
    if environment.name != "external":
        message = (
            "The platform's agent runner reports the outcome of this session. This route accepts only sessions of jobs "
            f"with environment 'external'; this job's environment is {environment.name!r}."
        )
        raise ApiError(HTTPStatus.FORBIDDEN, message, code="runner_owned_session")
    if is_own_key and environment.reward_by is not RewardBy.SESSION:
        message = (
            "A session's key gives access to the policy only. Report rewards and close sessions with an API token of "
            "the job's project, or set environment.reward_by to 'session' in the job's spec."
        )
        raise ApiError(HTTPStatus.FORBIDDEN, message, code="session_key_not_accepted")


def _branch_refusal() -> ApiError:
    message = (
        "branch is not accepted: a reward applies to the whole session, and all its branches are trained with the same "
        "advantage. Leave branch out, or give each part that needs its own reward a session of its own."
    )
    return ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, message, param="branch", code="branch_not_accepted")


def outcome_refusal(row: SessionRow) -> ApiError:
    """Return the refusal of an outcome that differs from that of the closed session."""
    message = f"The session is closed with the reward {row.reward:g}, and its outcome can no longer change."
    return ApiError(HTTPStatus.CONFLICT, message, param="reward", code="outcome_differs")
