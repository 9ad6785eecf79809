"""Serves requests for the policy's next answer, in any dialect, with and without streaming.

In: a session, a request's dialect and marks, and its `Client`. The end of an answer is sent only after the turn's
commit. If a client leaves, its engine request is aborted and its partial turn is kept; if its job resumes failed
sessions, the answer grows to its end instead. The next request with the same body continues that turn or, if it was
committed after all, gets the recorded answer; so a retry needs no mark. A body whose answer was sent in full is a new
turn when it is repeated, because agents sample several answers in this way, and so is one whose client still waits.
`Marks` make a repeat the same turn in any case.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol
from uuid import UUID

import psycopg

from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.dialects.dialect import Dialect, Reply
from seamlessflow.data_plane.dialects.turn_request import TurnRequest
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.serving.bounds import SessionBounds
from seamlessflow.data_plane.serving.growth import TurnGrowth
from seamlessflow.data_plane.serving.making import TurnMaker
from seamlessflow.data_plane.serving.planning import TurnPlanner, completed, met
from seamlessflow.data_plane.serving.repeats import Marks
from seamlessflow.data_plane.serving.signs_of_life import SignsOfLife
from seamlessflow.data_plane.serving.waiting import NoEngineYet, patience_s, waiting_comment
from seamlessflow.data_plane.store.turns.protocol import TurnRefused
from seamlessflow.data_plane.turns.rollout_manager import RolloutManager
from seamlessflow.data_plane.turns.trajectory_manager.in_flight import InFlight
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession, Partial, Turn
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry
from seamlessflow.data_plane.turns.trajectory_manager.turn import recorded_choices, turn_commit


class Client(Protocol):
    """The client of one request. Its answer is either whole, or a stream whose last chunk ends it."""

    async def read(self) -> bytes:
        """Return the body of the request. Raises ApiError, and ClientGone if the client leaves meanwhile."""
        ...

    def release(self) -> None:
        """Count the body no longer: nothing refers to it any more."""
        ...

    def departure(self, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `call` if the client leaves while this context is open, at once if it has left."""
        ...

    async def answer(self, body: bytes, *, ignored: Sequence[str], waited_s: float) -> None:
        """Send a whole answer. `ignored`: the fields of the request that had no effect."""
        ...

    async def open_stream(self, content_type: bytes, *, ignored: Sequence[str]) -> None: ...

    async def write(self, chunk: bytes, *, is_last: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class TurnTimes:
    """engine_wait_s: how long a whole answer may wait for an engine. retry_window_s: how long partial turns stay."""

    engine_wait_s: float
    keepalive_s: float
    retry_window_s: float


class TurnService:
    """One per process."""

    def __init__(
        self,
        registry: Registry,
        planner: TurnPlanner,
        bounds: SessionBounds,
        manager: RolloutManager,
        times: TurnTimes,
        is_watched: Callable[[UUID], bool],
        clock: Callable[[], float],
    ) -> None:
        """`is_watched`: whether people look at a group's answers while they grow."""
        self._maker = TurnMaker(registry, planner, bounds, clock)
        self._growth = TurnGrowth(manager, clock)
        self._registry = registry
        self._bounds = bounds
        self._manager = manager
        self._times = times
        self._is_watched = is_watched
        self._clock = clock

    async def serve(self, session: LiveSession, dialect: Dialect[Any], marks: Marks, client: Client) -> None:
        """Answer one request: read, parse, plan, grow, commit, answer. Raises ApiError, psycopg.Error, ClientGone."""
        body = await client.read()
        digest = marks.digest(body)
        is_new = not session.is_known(digest, is_retry=marks.is_retry)
        if is_new:
            self._bounds.check_next(session)  # before anything is made of it
        request = met(session, dialect.parse(body, temperature=session.sampling.temperature))
        del body
        if is_new:
            self._bounds.check_answers(session, request.num_choices)  # before it becomes a prompt
        request = await completed(session, request, self._registry.store)
        await marks.wait_for_same(session, digest)
        _check_open(session)
        flight = session.in_flight[digest] = InFlight.here()
        metrics.IN_FLIGHT.inc()
        try:
            with client.departure(flight.client_left):
                turn = await self._maker.turn(session, request, digest, is_retry=marks.is_retry)
                client.release()  # a turn may take minutes, and its memory is bounded by the model's context
                await self._serve_turn(turn, dialect, request, client)
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

    async def _serve_turn(
        self, turn: Turn, dialect: Dialect[Any], request: TurnRequest[Any], client: Client
    ) -> None:
        turn.wait.patience_s = patience_s(
            turn.session, self._times.engine_wait_s, is_streamed=request.is_streamed
        )
        self._registry.turn_begin(turn)
        try:
            if turn.is_recorded:
                await self._read_back(turn)
            reply = dialect.reply(turn, request, created_s=int(time.time()))
            if request.is_streamed:
                await self._answer_stream(turn, request, reply, client)
            else:
                await self._answer_whole(turn, request, reply, client)
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

    async def _answer_whole(
        self, turn: Turn, request: TurnRequest[Any], reply: Reply, client: Client
    ) -> None:
        has_one_call = request.has_one_call or turn.plan.has_one_call
        is_streamed = bool(request.stop) or has_one_call or self._is_watched(turn.session.group_id)
        await self._growth.grow(turn, is_streamed=is_streamed)
        await self._commit(turn)
        await client.answer(
            reply.whole(), ignored=request.ignored, waited_s=turn.wait.waited_s(self._clock())
        )

    async def _answer_stream(
        self, turn: Turn, request: TurnRequest[Any], reply: Reply, client: Client
    ) -> None:
        await client.open_stream(request.stream_type, ignored=request.ignored)
        signs = SignsOfLife(client.write, partial(self._sign, turn, reply), self._times.keepalive_s)
        turn.wait.on_begin = partial(self._sign_if_no_engine, turn, signs)
        try:
            async with signs:
                await signs.write(reply.opening())
                await self._growth.grow(
                    turn, lambda choice, deltas: signs.write(reply.deltas(choice, deltas))
                )
            await self._commit(turn)
        except ApiError as error:  # the status is sent already, so the error goes into the stream
            await client.write(reply.failure(error), is_last=True)
            return
        await client.write(reply.closing(), is_last=True)

    def _sign(self, turn: Turn, reply: Reply) -> bytes:
        why = self._manager.why_none(turn.session.job.job_id) if turn.wait.is_waiting else None
        sign = reply.keepalive()
        # An API whose sign is blank has clients that take a comment for a broken answer.
        return sign if why is None or sign.isspace() else waiting_comment(why)

    def _sign_if_no_engine(self, turn: Turn, signs: SignsOfLife) -> None:
        """Show at once that a turn waits, if that is because no engine works for its job."""
        if self._manager.why_none(turn.session.job.job_id) is not None:
            signs.sign_soon()

    async def _commit(self, turn: Turn) -> None:
        if turn.is_recorded:
            return
        if not turn.session.is_open:
            self._registry.leave(turn)
        _check_open(turn.session)
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
        """Keep the sampled tokens for a retry or the slot's next attempt; a recorded turn is only delivered again."""
        session = turn.session
        if turn.is_recorded:
            session.undelivered[turn.request_digest] = turn.turn_id
        elif not session.is_open:
            self._registry.leave(turn)
        elif turn.growing or turn.has_tokens:
            turn.wait.give_up()
            session.keep_partial(Partial(turn, self._clock() + self._times.retry_window_s))


def _check_open(session: LiveSession) -> None:
    if session.job.is_over:
        raise ApiError(HTTPStatus.BAD_REQUEST, "The job is over.", code="job_over")
    if not session.is_open:
        raise ApiError(HTTPStatus.BAD_REQUEST, "The session is closed.", code="session_closed")
