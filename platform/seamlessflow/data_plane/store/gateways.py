"""Rows of gateways: who is alive, under which epoch, and which sessions an epoch may write.

A session names the one epoch that may write its turns; `store/turns/turn_store` checks it in the transaction that
writes them. To delete the row of a gateway ends its epoch: its sessions may then be claimed by others, and what
the gateway was away for is added to the held time of its open sessions, in the same transaction. All times are the
database's.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.placement.engine_key import EngineKey
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.runtime.sql import sql_literal

# The channels; each payload has ids of sessions, separated by commas.
SESSIONS_OVER = "sf_sessions_over"
SESSIONS_FAILED = "sf_sessions_failed"  # over too, but the next attempts of their slots may resume them
MAX_SESSIONS_SENT = 200  # in one notification, which may have 8000 bytes
Paces = Mapping[EngineKey, tuple[float, float]]  # tokens sampled while the engine was full, and its seconds
_SESSION_OPEN = sql_literal(SessionState.OPEN)


@dataclass(frozen=True, slots=True)
class Member:
    """A gateway with a row. `demands`: how many turns it has for each engine."""

    epoch: int
    name: str  # the base URL at which other gateways reach it
    public_url: str  # the base URL that its sessions get
    demands: Mapping[EngineKey, int]
    is_silent: bool = False  # for longer than a lease


@dataclass(frozen=True, slots=True)
class Holder:
    """Which epoch a session names, and the gateway behind it: None if that epoch has ended."""

    group_id: UUID
    key_digest: bytes
    epoch: int | None
    name: str | None


async def gateway_join(connection: Connection, name: str, public_url: str) -> int:
    """Begin an epoch and return it. Ends the epoch of a predecessor with the same name."""
    await _end(connection, "name = %s", [name])
    cursor = await connection.execute(
        """INSERT INTO trajectory_gateway (name, public_url, seen_at, demands)
           VALUES (%s, %s, clock_timestamp(), '{}') RETURNING epoch""",
        [name, public_url],
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def gateway_leave(connection: Connection, epoch: int) -> None:
    """End the epoch of a gateway that stops."""
    await _end(connection, "epoch = %s", [epoch])


async def gateway_sign(
    connection: Connection,
    epoch: int,
    demands: Mapping[EngineKey, int],
    turns: Mapping[UUID, int],
    paces: Paces | None = None,
) -> bool:
    """Give a sign of life. Returns False if the epoch has ended. `turns`: how many run or wait, by job; `paces`: tokens
    and seconds of full engines, or None if the row's are new enough."""
    paces_json = None if paces is None else Jsonb({str(key): _rounded(*sums) for key, sums in paces.items()})
    cursor = await connection.execute(
        """UPDATE trajectory_gateway SET seen_at = clock_timestamp(), demands = %s, turns = %s,
                                         paces = coalesce(%s, paces)
           WHERE epoch = %s""",
        [_counts(demands), _counts(turns), paces_json, epoch],
    )
    return cursor.rowcount == 1


async def gateway_turns_set(connection: Connection, epoch: int, turns: Mapping[UUID, int]) -> bool:
    """Write how many turns run or wait, by job, between two signs of life. Returns False if the epoch has ended."""
    cursor = await connection.execute(
        "UPDATE trajectory_gateway SET turns = %s WHERE epoch = %s", [_counts(turns), epoch]
    )
    return cursor.rowcount == 1


async def read_again_book(connection: Connection, tokens: Mapping[UUID, int]) -> None:
    """Add to phases how many tokens of their turns other engines had to read again."""
    await connection.execute(
        """UPDATE scheduling_phase p SET num_read_again_tokens = num_read_again_tokens + fresh.num_tokens
           FROM unnest(%s::uuid[], %s::bigint[]) AS fresh (id, num_tokens) WHERE p.id = fresh.id""",
        [list(tokens), list(tokens.values())],
    )


def _rounded(num_tokens: float, seconds: float) -> list[float]:
    return [round(num_tokens), round(seconds, 1)]


def _counts(numbers: Mapping[UUID, int] | Mapping[EngineKey, int]) -> Jsonb:
    return Jsonb({str(key): number for key, number in numbers.items()})


async def gateways_read(connection: Connection, *, lease_s: float) -> list[Member]:
    """Return all gateways, in order of their epochs."""
    cursor = await connection.execute(
        """SELECT epoch, name, public_url, demands, seen_at < clock_timestamp() - make_interval(secs => %s)
           FROM trajectory_gateway ORDER BY epoch""",
        [lease_s],
    )
    return [
        Member(
            epoch, name, url, {EngineKey.parse(key): num for key, num in demands.items()}, is_silent=is_silent
        )
        for epoch, name, url, demands, is_silent in await cursor.fetchall()
    ]


async def gateways_end_silent(connection: Connection, *, lease_s: float) -> list[str]:
    """End the epochs of gateways that have been silent for longer than a lease, and return their names."""
    return await _end(connection, "seen_at < clock_timestamp() - make_interval(secs => %s)", [lease_s])


async def absence_credit(connection: Connection, epoch: int, gap_s: float) -> None:
    """Add the last `gap_s` seconds to the held time of an epoch's open sessions: their gateway was blocked."""
    cursor = await connection.execute(
        "SELECT clock_timestamp(), name FROM trajectory_gateway WHERE epoch = %s", [epoch]
    )
    if (row := await cursor.fetchone()) is not None:
        await _credit(connection, epoch, row[1], row[0] - datetime.timedelta(seconds=gap_s), row[0])


async def session_holder(connection: Connection, session_id: UUID) -> Holder | None:
    """Return who holds a session; None if there is no such session."""
    cursor = await connection.execute(
        """SELECT s.group_id, s.key_digest, s.gateway_epoch, g.name FROM trajectory_session s
           LEFT JOIN trajectory_gateway g ON g.epoch = s.gateway_epoch WHERE s.id = %s""",
        [session_id],
    )
    row = await cursor.fetchone()
    return None if row is None else Holder(row[0], bytes(row[1]), row[2], row[3])


async def session_claim(connection: Connection, session_id: UUID, *, ended: int | None, epoch: int) -> bool:
    """Make `epoch` the one that may write a session, in place of an epoch that has `ended`.

    Returns False if another gateway was faster, or if `epoch` itself has ended. It waits for a turn that is being
    written and from then on refuses those of the old epoch, so a later read is complete.
    """
    cursor = await connection.execute(
        """UPDATE trajectory_session s SET gateway_epoch = %(epoch)s
           WHERE s.id = %(session)s AND s.gateway_epoch IS NOT DISTINCT FROM %(ended)s
             AND NOT EXISTS (SELECT 1 FROM trajectory_gateway g WHERE g.epoch = %(ended)s)
             AND EXISTS (SELECT 1 FROM trajectory_gateway g WHERE g.epoch = %(epoch)s)""",
        {"session": session_id, "ended": ended, "epoch": epoch},
    )
    return cursor.rowcount == 1


async def sessions_over_tell(connection: Connection, channel: str, session_ids: Sequence[UUID]) -> None:
    """Tell all gateways on one of the channels that these sessions are over, at most MAX_SESSIONS_SENT."""
    await connection.execute("SELECT pg_notify(%s, %s)", [channel, ",".join(map(str, session_ids))])


async def _end(connection: Connection, condition: LiteralString, values: Sequence[object]) -> list[str]:
    cursor = await connection.execute(
        f"DELETE FROM trajectory_gateway WHERE {condition} RETURNING epoch, name, seen_at, clock_timestamp()",
        values,
    )
    ended = await cursor.fetchall()
    for epoch, name, seen_at, now in ended:
        await _credit(connection, epoch, name, seen_at, now)
    return [name for _, name, _, _ in ended]


async def _credit(
    connection: Connection,
    epoch: int,
    name: str,
    began_at: datetime.datetime,
    ended_at: datetime.datetime,
) -> None:
    """Stop the timers that ran when the gateway was last seen, and count from then on what it was away for."""
    await connection.execute(
        """UPDATE trajectory_session_hold
           SET held_s = held_s + greatest(extract(epoch FROM %s - held_since), 0), held_since = NULL
           WHERE gateway = %s AND held_since IS NOT NULL""",
        [began_at, name],
    )
    await connection.execute(
        f"""INSERT INTO trajectory_session_hold AS h (session_id, project_id, gateway, held_s, away_s)
           SELECT s.id, s.project_id, %(name)s, 0,
                  greatest(extract(epoch FROM %(ended)s - greatest(%(began)s, s.opened_at)), 0)
           FROM trajectory_session s WHERE s.gateway_epoch = %(epoch)s AND s.state = {_SESSION_OPEN}
           ORDER BY s.id
           ON CONFLICT (session_id) DO UPDATE SET away_s = h.away_s + excluded.away_s""",
        {"name": name, "epoch": epoch, "began": began_at, "ended": ended_at},
    )
