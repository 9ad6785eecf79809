"""Requests for the policy's next answer, in any dialect, with and without streaming.

The end of a turn (the JSON answer, or the last event) is sent only after its commit. If a client disconnects, its
engine request is aborted and its partial turn is kept; if its job resumes failed sessions, the answer grows to its end
instead. The next request with the same body continues that turn or, if it was committed after all, gets the recorded
answer; so a retry needs no mark. A body whose answer was sent in full is
a new turn when it is repeated, because agents sample several answers in this way, and so is one whose client still
waits. Marks say more: a repeat with the OpenAI SDKs' header `x-stainless-retry-count` takes over the turn in flight,
and gets the recorded answer even if that was sent in full. Requests with the same body and the same `Idempotency-Key`
are one turn, however often they arrive: a repeat waits for the one in flight.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from typing import Any

import psycopg

from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.config import Settings
from seamlessflow.data_plane.dialects.dialect import Dialect, Reply
from seamlessflow.data_plane.dialects.turn_request import TurnRequest
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.live.progress_feed import Watched
from seamlessflow.data_plane.routes.http import (
    BodyRoom,
    HeldBody,
    Receive,
    Scope,
    Send,
    credential,
    header,
    send_head,
    send_whole,
)
from seamlessflow.data_plane.routes.planning import TurnPlanner, completed, heard
from seamlessflow.data_plane.routes.signs_of_life import SignsOfLife
from seamlessflow.data_plane.routes.turn_gate import TurnEntry
from seamlessflow.data_plane.routes.turn_making import TurnMaker
from seamlessflow.data_plane.routes.waiting import (
    EngineRefusals,
    NoEngineYet,
    patience_s,
    waited_header,
    waiting_comment,
)
from seamlessflow.data_plane.store.turns.turn_store import TurnRefused
from seamlessflow.data_plane.turns.rollout_manager import RolloutManager, is_asked_whole
from seamlessflow.data_plane.turns.trajectory_manager.in_flight import InFlight
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, LiveSession, Partial, Turn
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry
from seamlessflow.data_plane.turns.trajectory_manager.turn import (
    recorded_choices,
    turn_commit,
    turn_grow,
    turn_grow_whole,
)
from seamlessflow.runtime.http.departure import departure_of
from seamlessflow.runtime.timed_steps import timed_too

FIELD_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # what may stand in a header; others are only counted
MAX_IGNORED_NAMED = 20
NO_CACHE = (b"cache-control", b"no-cache")
_Grow = Callable[[Choice], Coroutine[None, None, None]]


class TurnRoute:
    """Serves the requests of one dialect; one per dialect and process."""

    def __init__(
        self,
        dialect: Dialect[Any],
        settings: Settings,
        registry: Registry,
        manager: RolloutManager,
        watched: Watched,
        bodies: BodyRoom,
        planner: TurnPlanner,
        entry: TurnEntry,
        clock: Callable[[], float],
    ) -> None:
        self._dialect = dialect
        self._maker = TurnMaker(registry, planner, entry.bounds, clock)
        self._entry, self._bounds = entry, entry.bounds
        self._settings = settings
        self._bodies = bodies
        self._watched = watched
        self._registry = registry
        self._manager = manager
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = await self._registry.session_by_key(credential(scope))
        await self._entry.serve(session, partial(self._hold, session, scope, receive, send))

    async def _hold(self, session: LiveSession, scope: Scope, receive: Receive, send: Send) -> None:
        with self._bodies.hold() as held:
            await self._take(session, scope, receive, send, held)

    async def _take(
        self, session: LiveSession, scope: Scope, receive: Receive, send: Send, held: HeldBody
    ) -> None:
        body = await held.read(scope, receive)
        key = header(scope, b"idempotency-key")
        digest = _digest(key, body)
        is_retry = bool(key) or header(scope, b"x-stainless-retry-count").strip("0 ") != ""
        is_new = not session.is_known(digest, is_retry=is_retry)
        if is_new:
            self._bounds.check_next(session)  # before anything is made of it
        request = heard(session, self._dialect.parse(body, temperature=session.sampling.temperature))
        if is_new:
            self._bounds.check_answers(session, request.num_choices)  # before it becomes a prompt
        request = await completed(session, request, self._registry.store)
        if key:
            await self._wait_same(session, digest)
        elif is_retry:
            await self._wait_predecessor(session, digest)
        else:
            await self._wait_left(session, digest)
        self._check_open(session)
        del body
        flight = session.in_flight[digest] = InFlight.here()
        metrics.IN_FLIGHT.inc()
        try:
            with departure_of(scope).awaited(flight.client_left):
                await self._serve(session, request, digest, is_retry=is_retry, send=send, held=held)
        except asyncio.CancelledError:
            if not flight.cancellation_taken():
                raise
            if not flight.has_client_left:
                message = "The session was closed, or a retry has taken over this turn."
                raise ApiError(HTTPStatus.BAD_REQUEST, message) from None
        finally:
            flight.end()
            if session.in_flight.get(digest) is flight:
                del session.in_flight[digest]
            metrics.IN_FLIGHT.dec()

    def _check_open(self, session: LiveSession) -> None:
        if session.job.is_over:
            raise ApiError(HTTPStatus.BAD_REQUEST, "The job is over.", code="job_over")
        if not session.is_open:
            raise ApiError(HTTPStatus.BAD_REQUEST, "The session is closed.", code="session_closed")

    async def _wait_same(self, session: LiveSession, digest: bytes) -> None:
        """Wait for the same request in flight: cancelling it could take the answer from the client that reads it."""
        while (flight := session.in_flight.get(digest)) is not None:
            await flight.ended()

    async def _wait_predecessor(self, session: LiveSession, digest: bytes) -> None:
        """Cancel the same request if it is in flight, because its client has given up, and wait for its commit."""
        if (flight := session.in_flight.get(digest)) is not None:
            flight.cancel()
            await flight.ended()

    async def _wait_left(self, session: LiveSession, digest: bytes) -> None:
        """Wait until the same request has stopped if its client has left; one whose client waits is another turn."""
        flight = session.in_flight.get(digest)
        if flight is not None and flight.has_client_left:
            await flight.ended()

    async def _serve(
        self,
        session: LiveSession,
        request: TurnRequest[Any],
        digest: bytes,
        *,
        is_retry: bool,
        send: Send,
        held: HeldBody,
    ) -> None:
        turn = await self._maker.turn(session, request, digest, is_retry=is_retry)
        held.release()  # a turn may take minutes, and what it keeps is bounded by the model's context
        is_recorded = turn.is_recorded
        turn.wait.patience_s = patience_s(
            session, self._settings.engine_wait_s, is_streamed=request.is_streamed
        )
        self._registry.turn_begin(turn)
        try:
            if is_recorded:
                await self._read_back(turn)
            reply = self._dialect.reply(turn, request, created_s=int(time.time()))
            await self._answer(turn, request, reply, send, is_recorded=is_recorded)
        except (asyncio.CancelledError, psycopg.Error, NoEngineYet):
            self._abandon(turn)
            raise
        finally:
            turn.end_count()
            self._registry.turn_end(turn)
            metrics.TURN.observe(self._clock() - turn.started_s)

    async def _read_back(self, turn: Turn) -> None:
        recorded = await recorded_choices(self._registry.store, turn.session, turn.turn_id)
        for choice, progress in zip(turn.choices, recorded, strict=True):
            progress.asked = choice.progress.asked
            choice.progress = progress
        metrics.RETRIES.labels("recorded").inc()

    async def _answer(
        self, turn: Turn, request: TurnRequest[Any], reply: Reply, send: Send, *, is_recorded: bool
    ) -> None:
        if request.is_streamed:
            await self._answer_stream(turn, request, reply, send, is_recorded=is_recorded)
            return
        # A group that somebody watches shows its answers while they grow.
        has_one_call = request.has_one_call or turn.plan.has_one_call
        is_streamed = bool(request.stop) or has_one_call or self._watched.is_watched(turn.session.group_id)
        await self._grow(turn, partial(self._grow_silently, turn, is_streamed=is_streamed))
        await self._commit(turn, is_recorded=is_recorded)
        waited = waited_header(turn.wait, self._clock())
        await send_whole(send, reply.whole(), headers=[*ignored_header(request.ignored), *waited])

    async def _grow(self, turn: Turn, grow: _Grow) -> None:
        """Let all answers grow to their ends. Those that the slot's next attempt may ask for outlive their request."""
        if not turn.session.job.resumes_failed:
            await _all([grow(choice) for choice in turn.choices])
            return
        turn.growth = asyncio.create_task(self._grow_after(turn, grow))
        turn.growth.add_done_callback(_look_at)
        await asyncio.shield(turn.growth)

    async def _grow_after(self, turn: Turn, grow: _Grow) -> None:
        """Wait until what the answers began with grows no more. The task is not charged for this time."""
        if turn.begun is not None and turn.begun.growth is not None and turn.begun.is_growing:
            hold = turn.session.affinity.hold
            hold.begin(self._clock())
            try:
                await asyncio.wait([turn.begun.growth])
            finally:
                turn.begun.growth.cancel()  # if this one was stopped
                hold.end(self._clock())
        await _all([grow(choice) for choice in turn.choices])

    async def _grow_silently(self, turn: Turn, choice: Choice, *, is_streamed: bool) -> None:
        with EngineRefusals(turn.wait, self._clock):
            if not is_streamed and is_asked_whole(choice.progress):
                await turn_grow_whole(turn, choice, self._manager)
                return
            async for _ in turn_grow(turn, choice, self._manager):
                pass

    async def _answer_stream(
        self, turn: Turn, request: TurnRequest[Any], reply: Reply, send: Send, *, is_recorded: bool
    ) -> None:
        await send_head(
            send, HTTPStatus.OK, request.stream_type, headers=[NO_CACHE, *ignored_header(request.ignored)]
        )
        signs = SignsOfLife(send, partial(self._sign, turn, reply), self._settings.keepalive_s)
        turn.wait.on_begin = partial(self._say_waiting, turn, signs)
        try:
            async with signs:
                await signs.write(reply.opening())
                await self._grow(turn, partial(self._grow_aloud, turn, reply=reply, signs=signs))
            await self._commit(turn, is_recorded=is_recorded)
        except ApiError as error:  # the status is sent already, so the error goes into the stream
            await send({"type": "http.response.body", "body": reply.failure(error)})
            return
        await send({"type": "http.response.body", "body": reply.closing()})

    def _sign(self, turn: Turn, reply: Reply) -> bytes:
        why = self._manager.why_none(turn.session.job.job_id) if turn.wait.is_waiting else None
        sign = reply.keepalive()
        # An API whose sign is blank has clients that take a comment for a broken answer.
        return sign if why is None or sign.isspace() else waiting_comment(why)

    def _say_waiting(self, turn: Turn, signs: SignsOfLife) -> None:
        """Say at once that a turn waits, if that is because no engine works for its job."""
        if self._manager.why_none(turn.session.job.job_id) is not None:
            signs.sign_soon()

    async def _grow_aloud(self, turn: Turn, choice: Choice, reply: Reply, signs: SignsOfLife) -> None:
        with EngineRefusals(turn.wait, self._clock):
            async with aclosing(turn_grow(turn, choice, self._manager)) as growing:
                async for deltas in growing:
                    if deltas and not turn.wait.is_given_up:
                        await signs.write(reply.deltas(choice, deltas))

    async def _commit(self, turn: Turn, *, is_recorded: bool) -> None:
        if is_recorded:
            return
        if not turn.session.is_open:
            self._registry.leave(turn)
        self._check_open(turn.session)
        try:
            await turn_commit(turn, self._registry.store, self._clock)
        except (TurnRefused, psycopg.Error) as error:
            if isinstance(error, TurnRefused):
                self._registry.leave(turn)
            self._registry.forget(turn.session.key.session_id)
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "The turn could not be recorded; send the request again.",
                code="not_recorded",
            ) from error

    def _abandon(self, turn: Turn) -> None:
        """Keep what was sampled for a retry or the slot's next attempt; a recorded turn only is delivered again."""
        session = turn.session
        if turn.is_recorded:
            session.undelivered[turn.request_digest] = turn.turn_id
        elif not session.is_open:
            self._registry.leave(turn)
        elif turn.growing or turn.has_tokens:
            turn.wait.give_up()
            session.keep_partial(Partial(turn, self._clock() + self._settings.retry_window_s))


def _digest(key: str, body: bytes) -> bytes:
    """Return the digest that identifies a request: of its body and, if there is one, of its Idempotency-Key."""
    digest = hashlib.sha256(f"{key}\n".encode() if key else b"")
    digest.update(body)
    return digest.digest()


def ignored_header(ignored: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Return the header that names the fields of a body that have no effect, if there are any."""
    names = [name for name in ignored if FIELD_NAME.fullmatch(name)][:MAX_IGNORED_NAMED]
    num_more = len(ignored) - len(names)
    text = ", ".join(names + ([f"{num_more} more"] if num_more else []))
    return [(b"x-seamlessflow-ignored", text.encode())] if text else []


async def _all(growing: Sequence[Coroutine[None, None, None]]) -> None:
    """Run all concurrently; the first failure cancels the others."""
    if len(growing) == 1:
        await growing[0]
        return
    tasks = [asyncio.create_task(timed_too(one)) for one in growing]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _look_at(growth: "asyncio.Task[None]") -> None:
    """Take the error of answers whose client may have left; else asyncio would report that nobody did."""
    if not growth.cancelled():
        growth.exception()
