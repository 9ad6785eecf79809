"""Rows of gateways: who is alive, under which epoch, and which sessions an epoch may write.

A session names the one epoch that may write its turns; `store/turns/turn_store` checks it in the transaction that
writes them. Deleting the row of a gateway ends its epoch: its sessions may then be claimed by others, and what
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
from seamlessflow.data_plane.store.connection import Connection, named_rows
from seamlessflow.runtime.sql import statements

# The channels; each payload has ids of sessions, separated by commas.
SESSIONS_OVER = "sf_sessions_over"
SESSIONS_FAILED = "sf_sessions_failed"  # over too, but the next attempts of their slots may resume them
MAX_SESSIONS_SENT = 200  # in one notification, which may have 8000 bytes
Paces = Mapping[EngineKey, tuple[float, float]]  # tokens sampled while the engine was full, and its seconds
SQL = statements(__name__, SessionState)


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
    (row,) = await named_rows(connection, SQL["join"], {"name": name, "public_url": public_url})
    return int(row.epoch)


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
    values = {"demands": _counts(demands), "turns": _counts(turns), "paces": paces_json, "epoch": epoch}
    cursor = await connection.execute(SQL["sign"], values)
    return cursor.rowcount == 1


async def gateway_turns_set(connection: Connection, epoch: int, turns: Mapping[UUID, int]) -> bool:
    """Write how many turns run or wait, by job, between two signs of life. Returns False if the epoch has ended."""
    cursor = await connection.execute(
        "UPDATE trajectory_gateway SET turns = %s WHERE epoch = %s", [_counts(turns), epoch]
    )
    return cursor.rowcount == 1


async def read_again_book(connection: Connection, tokens: Mapping[UUID, int]) -> None:
    """Add to phases how many tokens of their turns other engines had to read again."""
    values = {"phases": list(tokens), "tokens": list(tokens.values())}
    await connection.execute(SQL["read_again"], values)


def _rounded(num_tokens: float, seconds: float) -> list[float]:
    return [round(num_tokens), round(seconds, 1)]


def _counts(numbers: Mapping[UUID, int] | Mapping[EngineKey, int]) -> Jsonb:
    return Jsonb({str(key): number for key, number in numbers.items()})


async def gateways_read(connection: Connection, *, lease_s: float) -> list[Member]:
    """Return all gateways, in order of their epochs."""
    return [
        Member(
            row.epoch,
            row.name,
            row.public_url,
            {EngineKey.parse(key): num for key, num in row.demands.items()},
            is_silent=row.is_silent,
        )
        for row in await named_rows(connection, SQL["members"], {"lease_s": lease_s})
    ]


async def gateways_end_silent(connection: Connection, *, lease_s: float) -> list[str]:
    """End the epochs of gateways that have been silent for longer than a lease, and return their names."""
    return await _end(connection, "seen_at < clock_timestamp() - make_interval(secs => %s)", [lease_s])


async def absence_credit(connection: Connection, epoch: int, gap_s: float) -> None:
    """Add the last `gap_s` seconds to the held time of an epoch's open sessions: their gateway was blocked."""
    for row in await named_rows(connection, SQL["moment"], {"epoch": epoch}):
        await _credit(connection, epoch, row.name, row.now - datetime.timedelta(seconds=gap_s), row.now)


async def session_holder(connection: Connection, session_id: UUID) -> Holder | None:
    """Return who holds a session; None if there is no such session."""
    rows = await named_rows(connection, SQL["holder"], {"session": session_id})
    return Holder(**rows[0]._asdict()) if rows else None


async def session_claim(connection: Connection, session_id: UUID, *, ended: int | None, epoch: int) -> bool:
    """Make `epoch` the one that may write a session, in place of an epoch that has `ended`.

    Returns False if another gateway was faster, or if `epoch` itself has ended. It waits for a turn that is being
    written and from then on refuses those of the old epoch, so a later read is complete.
    """
    values = {"session": session_id, "ended": ended, "epoch": epoch}
    cursor = await connection.execute(SQL["claim"], values)
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
    """Stop the timers that ran when the gateway was last seen, and count its absence from then on."""
    values = {"name": name, "epoch": epoch, "began": began_at, "ended": ended_at}
    await connection.execute(SQL["stop_timers"], values)
    await connection.execute(SQL["count_absence"], values)
