"""Sessions of agents that run outside the platform: opened with a project token, rewarded and closed by their key."""

import datetime
from http import HTTPStatus
from uuid import UUID

import msgspec

from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.protocol.data_plane import RewardReport, SessionOpen, SessionOpened
from seamlessflow.core.types.ids import IdKind, parse_id, show_id
from seamlessflow.core.types.rewards import reward_problem
from seamlessflow.data_plane.config import Settings
from seamlessflow.data_plane.errors import ApiError, bad_request
from seamlessflow.data_plane.store.admission import group_counts
from seamlessflow.data_plane.store.connection import Connection, Pool
from seamlessflow.data_plane.store.groups import (
    NewGroup,
    OpenGroup,
    group_insert,
    job_lock,
    sessions_insert,
    slots_new,
    slots_read,
)
from seamlessflow.data_plane.store.sessions import SessionVerdict, reward_store, session_read, sessions_end
from seamlessflow.data_plane.store.settling import groups_lock, groups_settle
from seamlessflow.data_plane.store.tokens import token_projects
from seamlessflow.data_plane.trajectory_manager.live import LiveJob
from seamlessflow.data_plane.trajectory_manager.registry import Registry

MAX_KEY_CHARS = 200
MAX_BRANCH = 2**31
NUL = rb"\u0000"  # as JSON writes it; text that only looks like it is refused as well


class ExternalSessions:
    def __init__(self, settings: Settings, pool: Pool, registry: Registry) -> None:
        self._settings = settings
        self._pool = pool
        self._registry = registry

    async def authenticate(self, token: str, session: str | None = None) -> None:
        """Before a body is read: the token is one of a project, or may speak for `session`. Raises ApiError."""
        if session is not None:
            await self._own_session(token, session)
        else:
            await self._projects(token)

    async def open(self, token: str, request: SessionOpen) -> SessionOpened:
        """Raises ApiError."""
        job = await self._own_job(token, request.job)
        if job.spec.environment.name != "external":
            raise bad_request(
                "The job's environment is not 'external': it takes no sessions from outside the platform.",
                param="job",
            )
        if job.is_over:
            raise bad_request("The job is over.", param="job", code="job_over")
        key = request.group or ""
        if len(key) > MAX_KEY_CHARS:
            raise bad_request(
                f"group may have at most {MAX_KEY_CHARS} characters, got {len(key)}.", param="group"
            )
        for param, value in (("group", key), ("task", request.task)):
            if NUL in msgspec.json.encode(value):
                raise bad_request(f"{param} must not hold a NUL character.", param=param)
        async with self._pool.connection() as connection, connection.transaction():
            await job_lock(connection, job.job_id)
            group, slots = await _open_group(connection, job, key), []
            if group is not None:
                every = (await slots_read(connection, [group]))[group.group_id]
                slots = [slot for slot in every if slot.may_run]
            if group is None or not slots:
                group = await group_insert(connection, await _new_group(connection, job, key, request))
                slots = slots_new(group)
            now = datetime.datetime.now(datetime.UTC)
            (leased,) = await sessions_insert(
                connection, group, slots[:1], project_id=job.project_id, job_id=job.job_id, now=now
            )
        return SessionOpened(
            session=show_id(IdKind.SESSION, leased.session_id),
            api_key=leased.api_key,
            base_url=f"{self._settings.public_url}/v1",
        )

    async def reward(self, token: str, session: str, report: RewardReport) -> None:
        """Note a reward; the session's is its verdict when it closes. Raises ApiError."""
        if problem := reward_problem(report.reward):
            raise bad_request(f"{problem}.", param="reward")
        if report.branch is not None and not 0 <= report.branch < MAX_BRANCH:
            raise bad_request(f"branch must be the index of a leaf, got {report.branch}.", param="branch")
        session_id = await self._own_session(token, session)
        async with self._pool.connection() as connection, connection.transaction():
            row = await session_read(connection, session_id)
            assert row is not None
            if report.branch is None and row.state is not SessionState.OPEN and row.reward is not None:
                raise ApiError(HTTPStatus.CONFLICT, "The session has its verdict already.")
            branch = {} if report.branch is None else {f"branch_{report.branch}_reward": report.reward}
            await reward_store(connection, row, report.reward, metrics=branch)

    async def close(self, token: str, session: str) -> None:
        """End a session: with its reward as verdict, or failed without one. Raises ApiError."""
        session_id = await self._own_session(token, session)
        async with self._pool.connection() as connection, connection.transaction():
            row = await session_read(connection, session_id)
            assert row is not None
            job = await self._registry.job(row.job_id)
            await job_lock(connection, row.job_id)
            reason = "" if row.reward is not None else "closed without a reward"
            locked = await groups_lock(connection, [row.group_id])
            if await sessions_end(connection, {session_id: SessionVerdict(row.reward, reason)}):
                await groups_settle(connection, locked, job.spec)
        self._registry.close(session_id)

    async def _projects(self, token: str) -> frozenset[UUID]:
        async with self._pool.connection() as connection:
            return await token_projects(connection, token)

    async def _own_job(self, token: str, job_text: str) -> LiveJob:
        projects = await self._projects(token)
        try:
            job_id = parse_id(IdKind.JOB, job_text)
        except ValueError as error:
            raise bad_request(f"job: {error}.", param="job") from error
        job = await self._registry.job(job_id)
        if job.project_id not in projects:
            raise ApiError(HTTPStatus.NOT_FOUND, "There is no such job.", code="job_not_found")
        return job

    async def _own_session(self, token: str, text: str) -> UUID:
        """The session, if this is its key or a token of its project."""
        try:
            session_id = parse_id(IdKind.SESSION, text)
        except ValueError as error:
            raise bad_request(f"session: {error}.", param="session") from error
        if token.startswith("sfs_"):
            session = await self._registry.session_by_key(token)
            is_own = session.key.session_id == session_id
        else:
            async with self._pool.connection() as connection:
                projects = await token_projects(connection, token)
                row = await session_read(connection, session_id)
            is_own = row is not None and row.project_id in projects
        if not is_own:
            raise ApiError(HTTPStatus.NOT_FOUND, "There is no such session.", code="session_not_found")
        return session_id


async def _open_group(connection: Connection, job: LiveJob, key: str) -> OpenGroup | None:
    """The newest open group of this key, locked."""
    cursor = await connection.execute(
        """SELECT id, index, task, size FROM trajectory_group
           WHERE job_id = %s AND state = 'open' AND external_key = %s ORDER BY index DESC LIMIT 1 FOR UPDATE""",
        [job.job_id, key],
    )
    row = await cursor.fetchone()
    return None if row is None else OpenGroup(row[0], row[1], row[2], row[3])


async def _new_group(connection: Connection, job: LiveJob, key: str, request: SessionOpen) -> NewGroup:
    counts = await group_counts(connection, job.job_id)
    return NewGroup(
        project_id=job.project_id,
        job_id=job.job_id,
        index=counts.next_index,
        task_index=None,
        task=request.task,
        size=job.spec.rollout.group_size,
        external_key=key,
    )
