"""Decides which gateway answers a request: this one, or the one that serves its session or owns its job.

A session's turns go to the gateway whose epoch its row names. If that epoch has ended, the owner of its group by hash
claims it and reads it back. Requests of runners and trainers may be answered anywhere, because rows under locks decide
them; they go to the owner of their job, so that one gateway builds its batches and wakes those who wait for them. The
exception is the question for held time: it goes to the gateway that serves the session, which knows which engines it
doubts. Invariant: a session in memory under the current epoch needs no look-up.
"""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from uuid import UUID

import msgspec

from seamlessflow.core.protocol.credentials import InvalidCredential, phase_credential_verify
from seamlessflow.core.protocol.data_plane import SessionsHeldRequest
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.gateways.membership import Membership
from seamlessflow.data_plane.routes.http import Scope, credential, header
from seamlessflow.data_plane.store.api_keys import key_digest, key_session
from seamlessflow.data_plane.store.connection import Connection, Pool
from seamlessflow.data_plane.store.gateways import Holder, session_claim, session_holder
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry

FORWARDED = b"x-seamlessflow-forwarded"  # the number of gateways that have passed the request on
MAX_FORWARDS = 3
PHASE_PATHS = ("/runner/v1/", "/trainer/v1/")
HELD_PATH = "/runner/v1/sessions/held"
NUM_TRIES = 40  # of a claim, while others claim too or this gateway begins a new epoch
RETRY_S = 0.05


class Placing:
    """One per process."""

    def __init__(self, secret_key: str, pool: Pool, registry: Registry, membership: Membership) -> None:
        self._secret_key = secret_key
        self._pool = pool
        self._registry = registry
        self._membership = membership

    async def place(self, scope: Scope, read_body: Callable[[], Awaitable[bytes]]) -> str | None:
        """Return the gateway to pass the request on to; None: it is answered here. Raises ApiError (503)."""
        if scope["path"].startswith(PHASE_PATHS):
            return await self._place_phase(scope, read_body) if self._membership.has_peers else None
        try:
            api_key = credential(scope)
        except ApiError:
            return None  # the route refuses it
        session_id = key_session(api_key)
        return (
            None
            if session_id is None
            else await self._place_session(session_id, api_key, num_forwards(scope))
        )

    async def _place_phase(self, scope: Scope, read_body: Callable[[], Awaitable[bytes]]) -> str | None:
        if num_forwards(scope):
            return None
        try:
            claims = phase_credential_verify(credential(scope), secret=self._secret_key, now_s=time.time())
        except (ApiError, InvalidCredential):
            return None  # the route refuses it
        if scope["path"] == HELD_PATH:
            return await self._place_held(await read_body())
        owner = self._membership.owner(claims.job_id)
        return None if self._membership.is_me(owner) else owner.name

    async def _place_held(self, body: bytes) -> str | None:
        """Return the gateway that serves the first of the sessions; runners ask for one at a time."""
        try:
            session_ids = msgspec.json.decode(body, type=SessionsHeldRequest).session_ids
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None  # the route refuses it
        if not session_ids or self._registry.live(session_ids[0]) is not None:
            return None
        async with self._pool.connection() as connection:
            holder = await session_holder(connection, session_ids[0])
        return None if holder is None or holder.name == self._membership.name else holder.name

    async def _place_session(self, session_id: UUID, api_key: str, num_forwards: int) -> str | None:
        live = self._registry.live(session_id)
        if live is not None:
            if live.key.epoch == self._membership.epoch:
                return None
            self._registry.forget(session_id)  # the epoch under which it was read has ended
        for _ in range(NUM_TRIES):
            async with self._pool.connection() as connection:
                holder = await session_holder(connection, session_id)
                if holder is None or not hmac.compare_digest(holder.key_digest, key_digest(api_key)):
                    return None  # the route refuses it
                if holder.epoch == self._membership.epoch:
                    return None
                if holder.name is not None and holder.name != self._membership.name:
                    return _passed_on(holder.name, num_forwards)
                if holder.name is None:
                    owner = self._membership.owner(holder.group_id)
                    if not (self._membership.is_me(owner) or num_forwards):
                        return owner.name
                    if await self._claimed(connection, session_id, holder):
                        return None
            await asyncio.sleep(RETRY_S)
        raise gateway_away()

    async def _claimed(self, connection: Connection, session_id: UUID, holder: Holder) -> bool:
        epoch = self._membership.epoch
        is_mine = await session_claim(connection, session_id, ended=holder.epoch, epoch=epoch)
        if is_mine:
            metrics.CLAIMS.inc()
        return is_mine


def needs_holder(path: str) -> bool:
    """Return whether only the gateway that serves a session can answer; any can, if the owner of a job is away."""
    return path == HELD_PATH or not path.startswith(PHASE_PATHS)


def num_forwards(scope: Scope) -> int:
    """Return how many gateways have passed the request on."""
    text = header(scope, FORWARDED)
    return int(text) if text.isdecimal() and len(text) == 1 else 0


def gateway_away() -> ApiError:
    """Return the error for clients while the gateway of a session cannot be reached; the SDKs retry it."""
    message = "The gateway that serves this session cannot be reached; try again."
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE, message, code="gateway_away", headers={"retry-after": "1"}
    )


def _passed_on(name: str, num_forwards: int) -> str:
    """Raises ApiError (503) if the request has been passed on too often: its session moves right now."""
    if num_forwards >= MAX_FORWARDS:
        raise gateway_away()
    return name
