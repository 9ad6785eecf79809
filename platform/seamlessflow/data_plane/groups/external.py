"""Opens sessions for agents that run outside the platform, with an API token of the project.

`outcomes` ends them, and `expiry` ends those that go silent. Invariants: a request repeated with its Idempotency-Key
opens nothing; new groups begin as far as the staleness bound allows.
"""

import datetime
import hashlib
import re
from http import HTTPStatus
from uuid import UUID

import msgspec
import psycopg

from seamlessflow.core.protocol.data_plane import SessionOpen, SessionOpened
from seamlessflow.core.types.ids import IdKind, parse_id, show_id
from seamlessflow.data_plane.config import Settings
from seamlessflow.data_plane.errors import ApiError, bad_request
from seamlessflow.data_plane.gateways.membership import Membership
from seamlessflow.data_plane.groups.admission import training_room
from seamlessflow.data_plane.groups.session_keys import SessionKeys
from seamlessflow.data_plane.store.connection import Connection, Pool, database_now
from seamlessflow.data_plane.store.groups.group_rows import (
    NewGroup,
    OpenGroup,
    Slot,
    group_insert,
    group_open_of_key,
    job_lock,
    sessions_insert,
    slots_new,
    slots_read,
)
from seamlessflow.data_plane.store.tokens import token_projects
from seamlessflow.data_plane.store.turns.sessions import Opening, opening_read, opening_store
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry, job_not_found

HEADER = "Idempotency-Key"
_ACCEPTED_KEY = re.compile(r"[\x21-\x7e]{1,200}")
MAX_GROUP_CHARS = 200
RETRY_AFTER_S = 2
NUL = rb"\u0000"  # as JSON writes it; text with these six characters is refused as well


class ExternalSessions:
    def __init__(self, settings: Settings, pool: Pool, registry: Registry, membership: Membership) -> None:
        self._membership = membership
        self._keys = SessionKeys(settings.secret_key)
        self._pool = pool
        self._registry = registry

    async def authenticate(self, token: str) -> frozenset[UUID]:
        """Return the projects in which the API token may open sessions. Raises ApiError (401, 403)."""
        async with self._pool.connection() as connection:
            return await token_projects(connection, token)

    async def open(self, token: str, request: SessionOpen, *, key: str | None) -> tuple[SessionOpened, bool]:
        """Return the session and whether this call opened it; a request with a known `key` gets the earlier session.

        Raises ApiError: 422 if the key belongs to another request, 429 while the job admits no new group.
        """
        job = await self._own_job(token, request.job)
        _require_fitting(request, key)
        if job.spec.environment.name != "external":
            raise bad_request(
                f"job: its environment is {job.spec.environment.name!r}; only jobs with environment 'external' accept "
                "sessions from outside the platform.",
                param="job",
            )
        try:
            return await self._open(job, request, key)
        except psycopg.errors.UniqueViolation:  # another job used the key at the same moment; now it is found
            return await self._open(job, request, key)

    async def _open(self, job: LiveJob, request: SessionOpen, key: str | None) -> tuple[SessionOpened, bool]:
        digest = hashlib.sha256(msgspec.json.encode(request, order="deterministic")).digest()
        ttl_s = job.spec.environment.session_ttl_s
        async with self._pool.connection() as connection, connection.transaction():
            await job_lock(connection, job.job_id)
            earlier = await opening_read(connection, job.project_id, key) if key is not None else None
            if earlier is not None:
                return self._again(earlier, digest, ttl_s), False
            if job.is_over:
                raise bad_request("The job is over.", param="job", code="job_over")
            group, slot = await _place(connection, job, request)
            (leased,) = await sessions_insert(
                connection,
                group,
                [slot],
                project_id=job.project_id,
                job_id=job.job_id,
                now=await database_now(connection),
                epoch=self._membership.owner(group.group_id).epoch,
                make_key=self._keys.key,
            )
            expires_at = await opening_store(
                connection, leased.session_id, key=key, digest=digest, ttl_s=ttl_s
            )
        return self._opened(leased.session_id, group.group_id, leased.api_key, ttl_s, expires_at), True

    def _again(self, earlier: Opening, digest: bytes, ttl_s: float) -> SessionOpened:
        if earlier.digest != digest:
            message = f"{HEADER}: the key was already used for a different request in this project."
            raise ApiError(
                HTTPStatus.UNPROCESSABLE_ENTITY, message, param=HEADER, code="idempotency_key_reused"
            )
        if not self._keys.is_known(earlier.session_id, earlier.key_digest):
            message = "The installation's secret changed after the session was opened: its key cannot be shown again."
            raise ApiError(HTTPStatus.CONFLICT, message, param=HEADER, code="key_lost")
        api_key = self._keys.key(earlier.session_id)
        return self._opened(earlier.session_id, earlier.group_id, api_key, ttl_s, earlier.expires_at)

    def _opened(
        self, session_id: UUID, group_id: UUID, api_key: str, ttl_s: float, expires_at: datetime.datetime
    ) -> SessionOpened:
        return SessionOpened(
            session=show_id(IdKind.SESSION, session_id),
            api_key=api_key,
            base_url=f"{self._membership.owner(group_id).public_url}/v1",
            ttl_s=ttl_s,
            expires_at=expires_at.astimezone(datetime.UTC),
        )

    async def _own_job(self, token: str, job_text: str) -> LiveJob:
        projects = await self.authenticate(token)
        try:
            job_id = parse_id(IdKind.JOB, job_text)
        except ValueError as error:
            raise bad_request(f"job: {error}.", param="job") from error
        job = await self._registry.job(job_id)
        if job.project_id not in projects:
            raise job_not_found(job_id)
        return job


async def _place(connection: Connection, job: LiveJob, request: SessionOpen) -> tuple[OpenGroup, Slot]:
    """Return a free slot of the requested group, or else the first slot of a new group. Raises ApiError (429)."""
    key = request.group or ""
    group = await group_open_of_key(connection, job.job_id, key)
    if group is not None:
        for slot in (await slots_read(connection, [group]))[group.group_id]:
            if slot.may_run:
                return group, slot
    group = await group_insert(connection, await _new_group(connection, job, key, request))
    return group, slots_new(group)[0]


async def _new_group(connection: Connection, job: LiveJob, key: str, request: SessionOpen) -> NewGroup:
    """Return a new group to insert. Raises ApiError (429) while the job's bounds admit none."""
    counts, num_new = await training_room(connection, job)
    if num_new < 1:
        message = (
            f"The job admits no new group now: {counts.num_waiting} groups are open or wait to be trained and "
            f"{counts.num_unserved} are in training, as many as its staleness bound or its remaining updates "
            "allow. Close sessions that have ended and try again."
        )
        raise ApiError(
            HTTPStatus.TOO_MANY_REQUESTS,
            message,
            code="admission_closed",
            headers={"retry-after": str(RETRY_AFTER_S)},
        )
    return NewGroup(
        project_id=job.project_id,
        job_id=job.job_id,
        index=counts.next_index,
        task_index=None,
        task=request.task,
        size=job.spec.rollout.group_size,
        external_key=key,
    )


def _require_fitting(request: SessionOpen, key: str | None) -> None:
    """Raises ApiError (400)."""
    if key is not None and not _ACCEPTED_KEY.fullmatch(key):
        message = f"{HEADER}: {key!r} is not accepted; accepted: 1 to 200 printable ASCII characters without spaces."
        raise bad_request(message, param=HEADER)
    group = request.group or ""
    if len(group) > MAX_GROUP_CHARS:
        raise bad_request(
            f"group may have at most {MAX_GROUP_CHARS} characters, got {len(group)}.", param="group"
        )
    for param, value in (("group", group), ("task", request.task)):
        if NUL in msgspec.json.encode(value):
            raise bad_request(f"{param} must not contain a NUL character.", param=param)
