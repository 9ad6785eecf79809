"""A job that wants another number of engines is told within a period; one that wants as many as before is not.

How many more engines than it has a job wants is told within a period only if the number doubles.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest

from seamlessflow.data_plane.gateways.membership import Membership
from seamlessflow.data_plane.store.connection import Pool
from seamlessflow.data_plane.store.jobs import Engine
from seamlessflow.data_plane.turns.engines.pool import EnginePool
from seamlessflow.data_plane.turns.engines.turn_news import TurnNews

JOB = UUID(int=1)
NUM_SLOTS = 8


class Rows:
    """Stands for the database: keeps what was written, and answers that the gateway's row is there or not."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.booked: list[tuple[UUID, int]] = []
        self.is_away = False
        self.num_notified = 0
        self.has_row = True

    @asynccontextmanager
    async def connection(self) -> AsyncIterator["Rows"]:
        if self.is_away:
            raise psycopg.OperationalError("away")
        yield self

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield

    async def execute(self, query: str, values: Any) -> "Rows":
        if "scheduling_phase" in query:
            self.booked += zip(*values.values(), strict=True)
        elif query.startswith("UPDATE"):
            self.told.append(values[0].obj)
        else:
            self.num_notified += 1
        return self

    @property
    def rowcount(self) -> int:
        return int(self.has_row)


@pytest.fixture
def engines() -> EnginePool:
    pool = EnginePool(lambda: 0.0, max_held=100)
    pool.table_set([Engine(UUID(int=2), JOB, "http://engine", 0, "", NUM_SLOTS)])
    return pool


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def news(engines: EnginePool, rows: Rows) -> TurnNews:
    return TurnNews(cast(Pool, rows), Membership("http://gateway", "http://gateway"), engines)


def begin(engines: EnginePool, num: int) -> None:
    for _ in range(num):
        engines.turns.begin(JOB)


def end(engines: EnginePool, num: int) -> None:
    for _ in range(num):
        engines.turns.end(JOB)


def pass_periods(engines: EnginePool) -> None:
    """Let so much time pass that only what is under way now counts."""
    engines.turns.period_end()
    engines.turns.period_end()


async def test_turns_that_need_one_more_engine_are_told_at_once(
    engines: EnginePool, news: TurnNews, rows: Rows
) -> None:
    begin(engines, NUM_SLOTS)
    await news.look()
    begin(engines, 1)
    await news.look()
    assert rows.told == [{str(JOB): NUM_SLOTS}, {str(JOB): NUM_SLOTS + 1}]
    assert rows.num_notified == 2


async def test_as_many_engines_as_before_are_no_news(engines: EnginePool, news: TurnNews, rows: Rows) -> None:
    begin(engines, NUM_SLOTS)
    await news.look()
    end(engines, NUM_SLOTS - 1)
    for _ in range(3):
        await news.look()
    assert len(rows.told) == 1


async def test_how_many_more_engines_than_it_has_a_job_wants_is_news_only_if_it_doubles(
    engines: EnginePool, news: TurnNews, rows: Rows
) -> None:
    for num, num_told in ((2, 1), (3, 1), (4, 2), (3, 2), (6, 2), (7, 2), (8, 3)):
        begin(engines, num * NUM_SLOTS)
        await news.look()
        assert (num, len(rows.told)) == (num, num_told)
        end(engines, num * NUM_SLOTS)
        pass_periods(engines)


async def test_a_job_that_has_engines_enough_is_told_at_once(
    engines: EnginePool, news: TurnNews, rows: Rows
) -> None:
    begin(engines, 5 * NUM_SLOTS)
    await news.look()
    end(engines, 4 * NUM_SLOTS)
    pass_periods(engines)
    await news.look()
    assert [told[str(JOB)] for told in rows.told] == [5 * NUM_SLOTS, NUM_SLOTS]


async def test_engines_that_come_make_news_of_what_is_wanted_beyond_them(
    engines: EnginePool, news: TurnNews, rows: Rows
) -> None:
    begin(engines, 2 * NUM_SLOTS)
    await news.look()
    begin(engines, NUM_SLOTS)
    await news.look()
    assert len(rows.told) == 1
    engines.table_set([Engine(UUID(int=number), JOB, "http://engine", 0, "", NUM_SLOTS) for number in (2, 3)])
    await news.look()
    assert len(rows.told) == 2


async def test_what_a_sign_of_life_told_is_no_news(engines: EnginePool, news: TurnNews, rows: Rows) -> None:
    begin(engines, 1)
    assert engines.turns.report() == {JOB: 1}
    await news.look()
    assert rows.told == []


async def test_the_end_of_all_turns_is_told_after_two_periods(
    engines: EnginePool, news: TurnNews, rows: Rows
) -> None:
    begin(engines, 1)
    await news.look()
    end(engines, 1)
    for _ in range(3):
        await news.look()
    assert [told.get(str(JOB), 0) for told in rows.told] == [1, 0]


async def test_what_no_row_took_is_told_again(engines: EnginePool, news: TurnNews, rows: Rows) -> None:
    rows.has_row = False
    begin(engines, 1)
    await news.look()
    rows.has_row = True
    await news.look()
    assert (len(rows.told), rows.num_notified) == (2, 1)


async def test_tokens_read_again_are_booked_once_even_if_the_database_was_away(
    engines: EnginePool, news: TurnNews, rows: Rows
) -> None:
    phase = UUID(int=2)
    engines.read_again.add(phase, 40)
    rows.is_away = True
    with pytest.raises(psycopg.OperationalError):
        await news.look()
    engines.read_again.add(phase, 2)
    rows.is_away = False
    await news.look()
    await news.look()
    assert rows.booked == [(phase, 42)]
