"""Measures each page and socket snapshot of one job in a new installation, and again after a long
past was added.

The past belongs to 20 ended jobs: 5 million events, 5 million ledger intervals, a million nodes of
100 tokens, and what belongs to them. The rows of these jobs exist from the beginning, so lists of
jobs are always equally long. A page may take twice as long as in the new installation, or 20 ms
longer. A heartbeat is measured with one machine and job beside the past, and with 200 of each; the
number of its statements must not grow. The database has the indexes of its migrations. They are
dropped while the past is loaded and created again afterwards, because that takes a tenth of the
time.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import aiohttp
import psycopg

from tests.benchmarks.aged_pages import Fetch, Visitor, milliseconds, pages_of
from tests.benchmarks.report import Bound, Goal, Measured, Row
from tests.benchmarks.web_world import WebWorld, web_world
from tests.fixtures.aging import Past, old_jobs_make, past_curves_make, past_steps
from tests.fixtures.repository import ROOT

BASELINE = "alone"
WHOLE = Past(
    num_events=5_000_000, num_intervals=5_000_000, num_points=2_000_000, num_groups=200_000, num_phases=50_000,
    num_nodes=1_000_000, num_batches=2_500, num_versions=2_500, num_removals=20_000, num_uploads=2_000,
)  # fmt: skip
SHORT = Past(
    num_events=250_000, num_intervals=250_000, num_points=100_000, num_groups=10_000, num_phases=2_500,
    num_nodes=50_000, num_batches=125, num_versions=125, num_removals=1_000, num_uploads=100,
)  # fmt: skip
MAX_RATIO = 2.0
SLACK_MS = 20.0
NUM_WARM_UPS = 2
NUM_REPEATS = 9
NUM_SHORT_REPEATS = 3
MANY = 200  # machines, and jobs
# One row in two seconds of the last ten minutes, on each machine: the lanes always have as much to show.
LANES_BOOT = UUID(int=1)
LANES_S = 600
_LANES = """
    INSERT INTO telemetry_ledgerinterval (machine_id, project_id, job_id, boot_id, seq, state, cause, started_at,
        ended_at)
    SELECT machine_id, %s, %s, %s, i, 'serving', '', now() - i * interval '2 seconds',
        now() - (i - 1) * interval '2 seconds'
    FROM generate_series(1, %s) i, unnest(%s::uuid[]) AS machine_id
"""
_INDEXES = """
    SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), c.conname, pg_get_constraintdef(c.oid)
    FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype = 'u'
    WHERE i.indrelid = %s::regclass AND NOT i.indisprimary
"""

Times = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Bench:
    """`told` is the output of the program that created the job."""

    world: WebWorld
    told: Mapping[str, Any]
    visitor: Visitor

    @property
    def machines(self) -> list[UUID]:
        return [UUID(machine) for machine in self.told["machines"]]


async def measure(*, is_short: bool = False) -> Sequence[Row]:
    past, num_repeats = (SHORT, NUM_SHORT_REPEATS) if is_short else (WHOLE, NUM_REPEATS)
    async with web_world() as world, aiohttp.ClientSession() as http:
        bench = await _bench_make(world, http, past)
        pages = await pages_of(bench.visitor)
        alone = await _times(bench, pages, num_repeats)
        beats_alone = await _heartbeats(bench, 1)
        await asyncio.to_thread(_age, bench, past)
        aged = await _times(bench, pages, num_repeats)
        beats_aged, beats_of_many = await _heartbeats(bench, 1), await _heartbeats(bench, MANY)
    rows = [_page_row(name, aged[name], alone[name]) for name in pages]
    return [
        *sorted(rows, key=lambda row: (bool(row.is_met), -row.measured.median)),
        *_heartbeat_rows("aged, one machine", beats_aged, beats_alone),
        *_heartbeat_rows(f"aged, {MANY} machines and jobs", beats_of_many, beats_alone),
    ]


async def _bench_make(world: WebWorld, http: aiohttp.ClientSession, past: Past) -> Bench:
    data = world.data
    data.sql("UPDATE accounts_user SET is_staff = true, is_superuser = true WHERE id = %s", [data.user_id])
    data.sql("UPDATE accounts_membership SET role = 'owner' WHERE user_id = %s", [data.user_id])
    told = await _program(world, "tests.benchmarks.aged_job", str(data.job_id))
    visitor = Visitor(http, world.base_url, data.api_token, told["cookies"], told)
    with psycopg.connect(data.database_url, autocommit=True) as connection:
        old_jobs_make(connection.execute, like=data.job_id, num_batches=past.num_batches)
        past_curves_make(connection.execute)
        connection.execute("VACUUM (ANALYZE)")
    return Bench(world, told, visitor)


async def _heartbeats(bench: Bench, num: int) -> Mapping[str, Any]:
    return await _program(
        bench.world, "tests.benchmarks.aged_heartbeats", str(bench.world.data.job_id), str(num)
    )


async def _program(world: WebWorld, module: str, *arguments: str) -> dict[str, Any]:
    """Return the last line printed by a program that uses the world's database."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, cwd=ROOT, env=dict(world.environ), stdout=asyncio.subprocess.PIPE
    )  # fmt: skip
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{module} ended with status {process.returncode}")
    told: dict[str, Any] = json.loads(output.splitlines()[-1])
    return told


async def _times(bench: Bench, pages: Mapping[str, Fetch], num_repeats: int) -> Times:
    times: Times = {name: [] for name in pages}
    for number in range(NUM_WARM_UPS + num_repeats):
        _lanes_write(bench)
        for name, fetch in pages.items():
            elapsed_ms = await milliseconds(fetch)
            if number >= NUM_WARM_UPS:
                times[name].append(elapsed_ms)
    return times


def _lanes_write(bench: Bench) -> None:
    data = bench.world.data
    data.sql("DELETE FROM telemetry_ledgerinterval WHERE boot_id = %s", [LANES_BOOT])
    data.sql(_LANES, [data.project_id, data.job_id, LANES_BOOT, LANES_S // 2, bench.machines])


def _age(bench: Bench, past: Past) -> None:
    """Load the past as superuser of a database that nobody else writes to, without foreign key
    checks, and create the indexes at the end."""
    data = bench.world.data
    with psycopg.connect(data.database_url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET maintenance_work_mem = '512MB'")
        for statement, values in past_steps(past, data.project_id, bench.machines):
            started_s, table = time.perf_counter(), statement.split(maxsplit=3)[2]
            with _without_indexes(connection, table):
                rows = connection.execute(statement, values).rowcount
            print(f"{table}: {rows:,} rows in {time.perf_counter() - started_s:.0f} s", file=sys.stderr)
        connection.execute("VACUUM (ANALYZE)")


@contextmanager
def _without_indexes(connection: psycopg.Connection, table: str) -> Iterator[None]:
    """Drop all indexes except that of the primary key, and create them again afterwards."""
    indexes = connection.execute(_INDEXES, [table]).fetchall()
    for name, _, constraint, _ in indexes:
        connection.execute(
            f"ALTER TABLE {table} DROP CONSTRAINT {constraint}" if constraint else f"DROP INDEX {name}"
        )
    yield
    for _, definition, constraint, rule in indexes:
        # Of a partitioned table it is told without its partitions.
        whole = definition.replace(" ON ONLY ", " ON ", 1)
        connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT {constraint} {rule}" if constraint else whole)


def _page_row(name: str, aged: list[float], alone: list[float]) -> Row:
    measured, baseline = Measured(aged), Measured(alone)
    limit = max(MAX_RATIO * baseline.median, baseline.median + SLACK_MS)
    return Row(name, "ms", measured, BASELINE, baseline, Goal(limit, Bound.AT_MOST))


def _heartbeat_rows(name: str, many: Mapping[str, Any], one: Mapping[str, Any]) -> list[Row]:
    statements = Measured(one["statements"])
    return [
        Row(
            f"statements of a heartbeat, {name}",
            "",
            Measured(many["statements"]),
            BASELINE,
            statements,
            Goal(statements.median, Bound.AT_MOST),
        ),
        _page_row(f"heartbeat, {name}", many["ms"], one["ms"]),
    ]
