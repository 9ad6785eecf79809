"""The `TurnStore` on PostgreSQL: reads through a pool, and commits turns in groups through one writer.

`commit` takes the rows of a turn and returns when their transaction is committed. A flush starts at once if none is in
flight; turns that arrive during a flush share the next one. Busy times make few large flushes: while MANY turns or more
are at work, flushes begin at least PACE_S apart, and LONG_PACE_S while as many wait for an engine; after any flush of
several turns, the next waits as long as this one took, at most GATHER_S. The turns of a lone agent never wait for a
timer. If the connection is lost, the flush
is repeated on a new one without the turns that the lost flush stored: each is stored exactly once. Invariant: a turn is
stored only while its session is open and names the epoch under which this gateway holds it.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg import AsyncConnection

from seamlessflow.core.environment.resuming import attempt_to_resume, attempts_resumable
from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.trajectory.prefix_tree import NodeKind
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.store.connection import DATABASE_AWAY, RETRY_S, Connection, Pool, idle_bound
from seamlessflow.data_plane.store.jobs import JobRow, job_read
from seamlessflow.data_plane.store.turns.flush import Count, NotCounted, rows_store
from seamlessflow.data_plane.store.turns.node_rows import (
    NodeRow,
    SessionKey,
    nodes_present,
    nodes_read,
    prompt_digest,
    prompt_id,
)
from seamlessflow.data_plane.store.turns.node_texts import NodeText, node_texts_read
from seamlessflow.data_plane.store.turns.protocol import TurnRefused
from seamlessflow.data_plane.store.turns.sessions import (
    StoredAttempt,
    StoredSession,
    earlier_attempts,
    session_read,
)
from seamlessflow.runtime.connections import KEEPALIVES
from seamlessflow.runtime.sql import sql_literal

log = logging.getLogger(__name__)

MAX_QUEUED_TURNS = 4096
MAX_TURNS_PER_FLUSH = 512
GATHER_S = 0.005
# With fewer turns under way, one may be the last that a batch waits for, so its flush waits for no timer.
MANY = 8
# Engines are free as soon as they have answered, so this only delays the end of an answer.
PACE_S = 0.02
LONG_PACE_S = 0.04  # engines have other turns to go on with
_PREPARE_COUNT = f"""
    PREPARE turns_count (uuid[], bigint[], int[], bigint[]) AS
    UPDATE trajectory_session s
    SET num_turns = s.num_turns + c.turns, num_sampled_tokens = s.num_sampled_tokens + c.tokens
    FROM unnest($1, $2, $3, $4) AS c(id, epoch, turns, tokens)
    WHERE s.id = c.id AND s.gateway_epoch = c.epoch AND s.state = {sql_literal(SessionState.OPEN)}"""


@dataclass(frozen=True, slots=True)
class PendingTurn:
    rows: Sequence[NodeRow]
    done: "asyncio.Future[None]"


def pending_turn(rows: Sequence[NodeRow]) -> PendingTurn:
    return PendingTurn(rows, asyncio.get_running_loop().create_future())


def _none() -> int:
    return 0


class TurnWriter:
    def __init__(
        self,
        database_url: str,
        num_at_work: Callable[[], int] = _none,
        num_waiting: Callable[[], int] = _none,
    ) -> None:
        """`num_at_work`: the number of turns that are at engines or wait for one: those that may be stored soon.

        `num_waiting`: the number of them that wait for an engine.
        """
        self._url = database_url
        self._num_at_work = num_at_work
        self._num_waiting = num_waiting
        self._queue: asyncio.Queue[PendingTurn] = asyncio.Queue(MAX_QUEUED_TURNS)
        self._known_prompts: set[UUID] = set()
        self._connection: Connection | None = None
        self._prepared: Connection | None = None

    def commit(self, rows: Sequence[NodeRow]) -> Awaitable[None]:
        """Wait until these rows, all of one turn, are durable. Raises TurnRefused.

        The turn is queued by the call, without a task, unless the queue is full.
        """
        pending = pending_turn(rows)
        if self._queue.full():
            return self._commit_later(pending)
        self._queue.put_nowait(pending)
        return pending.done

    async def _commit_later(self, pending: PendingTurn) -> None:
        await self._queue.put(pending)
        await pending.done

    async def run(self) -> None:
        """Flush until cancelled."""
        try:
            while True:
                turns = [await self._queue.get()]
                while len(turns) < MAX_TURNS_PER_FLUSH and not self._queue.empty():
                    turns.append(self._queue.get_nowait())
                began_s = time.monotonic()
                await self._flush_each(turns)
                pause_s = self._pause_s(len(turns), took_s=time.monotonic() - began_s)
                if pause_s > 0:
                    await asyncio.sleep(pause_s)
        finally:
            if self._connection is not None:
                await self._connection.close()

    def _pause_s(self, num_turns: int, *, took_s: float) -> float:
        """Return how long to gather turns after a flush."""
        pace_s = self._pace_s()
        if num_turns == 1 and not pace_s:
            return 0.0
        return max(min(took_s, GATHER_S), pace_s - took_s)

    def _pace_s(self) -> float:
        if self._num_waiting() >= MANY:
            return LONG_PACE_S
        return PACE_S if self._num_at_work() >= MANY else 0.0

    async def _flush_each(self, turns: Sequence[PendingTurn]) -> None:
        try:
            await self._flush(turns)
        except TurnRefused as refusal:
            if len(turns) == 1:
                log.warning("a turn was refused: %s", refusal)
                _resolve(turns, refusal)
                return
            await self._flush_singly(turns)
            return
        except Exception as error:
            if len(turns) == 1:
                _resolve(turns, TurnRefused(f"the turn could not be stored: {error}"))
                log.exception("a turn could not be stored")
                return
            await self._flush_singly(turns)
            return
        _resolve(turns, None)

    async def _flush_singly(self, turns: Sequence[PendingTurn]) -> None:
        for turn in turns:  # one of them is at fault, and only that one is refused
            await self._flush_each([turn])

    async def _flush(self, turns: Sequence[PendingTurn]) -> None:
        started_s = time.monotonic()
        is_in_doubt = False
        while True:
            try:
                connection = await self._connected()
                await self.transact(connection, turns, is_in_doubt=is_in_doubt)
                metrics.FLUSH.observe(time.monotonic() - started_s)
                return
            except DATABASE_AWAY as error:
                log.warning("the database is unreachable, the flush will be repeated: %s", str(error).strip())
                is_in_doubt = True
                self._connection = None
                await asyncio.sleep(RETRY_S)

    async def transact(
        self, connection: Connection, turns: Sequence[PendingTurn], *, is_in_doubt: bool
    ) -> None:
        if connection is not self._prepared:
            await connection.execute(_PREPARE_COUNT)
            self._prepared = connection
        if is_in_doubt:
            turns = await _not_stored(connection, turns)
            self._known_prompts.clear()
        rows = [row for turn in turns for row in turn.rows]
        if not rows:
            return
        try:
            await rows_store(connection, rows, self._known_prompts, count=_count(turns))
        except NotCounted:
            raise TurnRefused("its session is over, or another gateway writes it now") from None
        for row in rows:
            if row.node.kind == NodeKind.ROOT:
                self._known_prompts.add(prompt_id(row.key.job_id, prompt_digest(row.node.token_ids)))

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            connection = await AsyncConnection.connect(
                self._url, autocommit=True, connect_timeout=5, **KEEPALIVES
            )
            await idle_bound(connection)
            self._connection = connection
        return self._connection


@dataclass(frozen=True, slots=True)
class PostgresTurns:
    """A `TurnStore`; see `store/turns/protocol` for its methods."""

    pool: Pool
    writer: TurnWriter

    async def job(self, job_id: UUID) -> JobRow | None:
        async with self.pool.connection() as connection:
            return await job_read(connection, job_id)

    async def session(self, session_id: UUID) -> StoredSession | None:
        async with self.pool.connection() as connection:
            row = await session_read(connection, session_id)
            if row is None:
                return None
            nodes = await nodes_read(connection, [(row.month, session_id)])
        return StoredSession(row, nodes[session_id])

    async def nodes(self, key: SessionKey) -> list[NodeRow]:
        async with self.pool.connection() as connection:
            return (await nodes_read(connection, [(key.month, key.session_id)]))[key.session_id]

    async def earlier(self, key: SessionKey) -> StoredAttempt | None:
        async with self.pool.connection() as connection:
            attempts = await earlier_attempts(connection, key.session_id)
            found = attempt_to_resume(attempts)
            if found is None:
                return None
            nodes = await nodes_read(connection, [(found.month, found.session_id)])
        failed = [attempt.session_id for attempt in attempts_resumable(attempts)]
        return StoredAttempt(found.session_id, nodes[found.session_id], failed)

    async def texts(self, key: SessionKey) -> list[NodeText]:
        async with self.pool.connection() as connection:
            return await node_texts_read(connection, key)

    def commit(self, rows: Sequence[NodeRow]) -> Awaitable[None]:
        return self.writer.commit(rows)


async def _not_stored(connection: Connection, turns: Sequence[PendingTurn]) -> list[PendingTurn]:
    """Return the turns that are not stored. A turn is written in one transaction, so checking one node suffices."""
    present = await nodes_present(connection, [row for turn in turns for row in turn.rows])
    return [
        turn
        for turn in turns
        if not any((r.key.session_id, r.node.index, r.facts.turn_id) in present for r in turn.rows)
    ]


def _count(turns: Sequence[PendingTurn]) -> Count:
    """Return what counts the turns in the rows of their sessions, which stay locked until the transaction ends.

    It counts fewer sessions if one is over or is no longer this gateway's. No gateway can claim a session that is
    locked.
    """
    counts: dict[tuple[UUID, int], tuple[int, int]] = {}
    for turn in turns:
        sampled = [row for row in turn.rows if row.node.kind == NodeKind.SAMPLED and not row.node.is_partial]
        session = turn.rows[0].key.session_id, turn.rows[0].key.epoch
        num_turns, num_tokens = counts.get(session, (0, 0))
        counts[session] = num_turns + bool(sampled), num_tokens + sum(row.node.num_tokens for row in sampled)
    columns = (
        [session for session, _ in counts],
        [epoch for _, epoch in counts],
        [num_turns for num_turns, _ in counts.values()],
        [num_tokens for _, num_tokens in counts.values()],
    )
    arrays = ", ".join(f"'{{{','.join(map(str, column))}}}'" for column in columns)
    return Count(f"EXECUTE turns_count ({arrays})", len(counts))


def _resolve(turns: Sequence[PendingTurn], error: Exception | None) -> None:
    for turn in turns:
        if turn.done.done():
            continue  # the waiting request was cancelled
        if error is None:
            turn.done.set_result(None)
        else:
            turn.done.set_exception(error)
