"""Takes rewards and ends of outside agents' sessions, as the project's programs report them.

A session's key opens only the policy: the agent that is trained does not report its own reward, unless the job's spec
has `environment.reward_by: session`. Invariant: the outcome of a session that is over never changes. A repeated report
and one after the session failed change nothing; another outcome is refused and leaves one event a session.
"""

from http import HTTPStatus
from uuid import UUID

from seamlessflow.core.environment.section import RewardBy
from seamlessflow.core.lifecycle.groups import GroupState, SessionState
from seamlessflow.core.protocol.data_plane import RewardReport, SessionOver
from seamlessflow.core.types.ids import IdKind, parse_id, show_id
from seamlessflow.core.types.rewards import reward_problem
from seamlessflow.data_plane.errors import ApiError, bad_request
from seamlessflow.data_plane.groups.finalization import GroupNews, groups_finalize
from seamlessflow.data_plane.store.connection import Pool
from seamlessflow.data_plane.store.events import outcome_refused_event
from seamlessflow.data_plane.store.groups.finalization import groups_lock
from seamlessflow.data_plane.store.groups.group_rows import KEY_PREFIX, job_lock
from seamlessflow.data_plane.store.tokens import token_projects
from seamlessflow.data_plane.store.turns.sessions import (
    SessionOutcome,
    SessionRow,
    reward_note,
    session_lock,
    session_read,
    sessions_end,
)
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry


class Outcomes:
    def __init__(self, pool: Pool, registry: Registry, news: GroupNews) -> None:
        self._pool = pool
        self._registry = registry
        self._news = news

    async def gradable(self, token: str, text: str) -> SessionRow:
        """Return the session, if the caller may grade it. Raises ApiError (401, 403, 404)."""
        try:
            session_id = parse_id(IdKind.SESSION, text)
        except ValueError as error:
            raise bad_request(f"session: {error}.", param="session") from error
        is_own_key, is_known = token.startswith(KEY_PREFIX), True
        if is_own_key:
            live = await self._registry.session_by_key(token)
            is_known, projects = live.key.session_id == session_id, frozenset({live.key.project_id})
        async with self._pool.connection() as connection:
            if not is_own_key:
                projects = await token_projects(connection, token)
            row = await session_read(connection, session_id)
        if not is_known or row is None or row.project_id not in projects:
            raise ApiError(HTTPStatus.NOT_FOUND, "There is no such session.", code="session_not_found")
        _require_may_grade(await self._registry.job(row.job_id), is_own_key=is_own_key)
        return row

    async def reward(self, row: SessionRow, report: RewardReport) -> SessionOver | None:
        """Store a reward, which becomes the outcome when the session closes. Returns None when it is stored.

        Raises ApiError (409) for another outcome than that of a closed session.
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
        """End a session: with its reward as outcome, or as failed without one. Doing it again changes nothing."""
        job = await self._registry.job(session.job_id)
        finalized: dict[UUID, GroupState] = {}
        async with self._pool.connection() as connection, connection.transaction():
            await job_lock(connection, session.job_id)
            locked = await groups_lock(connection, [session.group_id])
            row = await session_lock(connection, session.session_id)
            reason = "" if row.reward is not None else "closed without a reward"
            if await sessions_end(connection, {row.session_id: SessionOutcome(row.reward, reason)}):
                finalized = await groups_finalize(connection, locked, job.spec)
        self._news.tell(session.job_id, finalized.values())
        self._registry.close(session.session_id)


def _require_may_grade(job: LiveJob, *, is_own_key: bool) -> None:
    """Raises ApiError (403)."""
    environment = job.spec.environment
    if environment.name != "external":
        message = (
            "The platform's agent runner reports the outcome of this session. Only sessions of environment 'external' "
            "are rewarded and closed over this route."
        )
        raise ApiError(HTTPStatus.FORBIDDEN, message, code="runner_owned_session")
    if is_own_key and environment.reward_by is not RewardBy.SESSION:
        message = (
            "The key of a session opens the policy and nothing else. Report rewards and close sessions with an API "
            "token of the job's project, or set environment.reward_by to 'session' in the job's spec."
        )
        raise ApiError(HTTPStatus.FORBIDDEN, message, code="session_key_not_accepted")


def _branch_refusal() -> ApiError:
    message = (
        "branch is not accepted: a reward is that of the whole session, whose branches are trained with the same "
        "advantage. Leave branch out, or run what is rewarded apart in sessions of its own."
    )
    return ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, message, param="branch", code="branch_not_accepted")


def outcome_refusal(row: SessionRow) -> ApiError:
    """Return the refusal of an outcome that differs from the outcome of the closed session."""
    message = (
        f"The session is closed with the reward {row.reward:g}, and its outcome does not change any more."
    )
    return ApiError(HTTPStatus.CONFLICT, message, param="reward", code="outcome_differs")
