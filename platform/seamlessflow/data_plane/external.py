"""Sessions of agents that run outside the platform, opened with an API token of the project.

How they end is told to `outcomes`.
"""

import datetime
from http import HTTPStatus

import msgspec

from seamlessflow.core.protocol.data_plane import SessionOpen, SessionOpened
from seamlessflow.core.types.ids import IdKind, parse_id, show_id
from seamlessflow.data_plane.config import Settings
from seamlessflow.data_plane.errors import ApiError, bad_request
from seamlessflow.data_plane.project_access import projects_require
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
from seamlessflow.data_plane.trajectory_manager.live import LiveJob
from seamlessflow.data_plane.trajectory_manager.registry import Registry

MAX_KEY_CHARS = 200
NUL = rb"\u0000"  # as JSON writes it; text that only looks like it is refused as well


class ExternalSessions:
    def __init__(self, settings: Settings, pool: Pool, registry: Registry) -> None:
        self._settings = settings
        self._pool = pool
        self._registry = registry

    async def authenticate(self, token: str) -> None:
        """Before a body is read: the token is one of a project. Raises ApiError (401)."""
        await projects_require(self._pool, token)

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

    async def _own_job(self, token: str, job_text: str) -> LiveJob:
        projects = await projects_require(self._pool, token)
        try:
            job_id = parse_id(IdKind.JOB, job_text)
        except ValueError as error:
            raise bad_request(f"job: {error}.", param="job") from error
        job = await self._registry.job(job_id)
        if job.project_id not in projects:
            raise ApiError(HTTPStatus.NOT_FOUND, "There is no such job.", code="job_not_found")
        return job


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
