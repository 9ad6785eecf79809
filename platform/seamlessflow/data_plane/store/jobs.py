"""Reads the control plane's tables: jobs, the engines that serve them, and whether a caller still holds its phase."""

import datetime
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import UUID

from psycopg.rows import TupleRow

from seamlessflow.core.algorithms.staleness_bound import StalenessBound
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PhaseState
from seamlessflow.core.placement.engine_key import EngineKey
from seamlessflow.core.protocol.credentials import PhaseClaims, front_token
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.store.connection import Connection, named_rows
from seamlessflow.runtime.sql import statements

_LIVE = sorted(state.value for state in LIVE_PHASE_STATES)
SQL = statements(__name__, JobState, PhaseState, Role, over=TERMINAL_JOB_STATES)
_LIVE_PHASE = (
    "FROM scheduling_phase WHERE id = %s AND job_id = %s AND fence = %s AND role = %s AND state = ANY(%s)"
)


@dataclass(frozen=True, slots=True)
class JobRow:
    job_id: UUID
    project_id: UUID
    name: str
    state: str
    spec: dict[str, Any]
    model_path: str
    tasks_path: str
    evaluation_tasks_path: str
    num_dataset_groups: int = 0


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine of the engine table, reached through its door."""

    phase_id: UUID
    job_id: UUID
    endpoint: str
    version: int
    token: str
    num_slots: int  # sequences it decodes at once
    replica: int = 0  # its number among the engines of the phase
    machine: str = ""
    has_siblings: bool = False  # the phase has more engines
    is_behind: bool = False  # it was ordered to serve a newer version than it serves
    is_too_old: bool = False  # tokens that it samples now are beyond the staleness bound

    @property
    def key(self) -> EngineKey:
        return EngineKey(self.phase_id, self.replica)

    @property
    def noun(self) -> str:
        """What messages call it."""
        return (
            f"engine {self.replica} on {self.machine}"
            if self.has_siblings
            else f"the engine on {self.machine}"
        )


async def job_read(connection: Connection, job_id: UUID) -> JobRow | None:
    rows = await named_rows(connection, SQL["job"], {"job": job_id})
    return JobRow(**rows[0]._asdict()) if rows else None


async def jobs_ended_and_waiting(
    connection: Connection, job_ids: list[UUID]
) -> tuple[set[UUID], dict[UUID, str]]:
    """Return which of the jobs are over, and why others wait, as the scheduler says it to people."""
    rows = await named_rows(connection, SQL["ended_and_waiting"], {"jobs": job_ids})
    ended = {row.id for row in rows if row.is_over}
    return ended, {row.id: row.reason for row in rows if not row.is_over}


async def engines_read(connection: Connection, *, secret: str) -> list[Engine]:
    """Read the engine table: the engines of active rollout phases that have an endpoint and a version.

    An engine is too old if everything that it samples now would be beyond the job's staleness bound.
    """
    return [
        Engine(
            phase_id=row.phase_id,
            replica=row.replica,
            job_id=row.job_id,
            endpoint=row.endpoint.rstrip("/"),
            version=row.served_version,
            token=front_token(row.phase_id, row.fence, secret=secret),
            num_slots=row.num_slots,
            machine=row.machine,
            has_siblings=bool(row.has_siblings),
            is_behind=row.is_behind,
            is_too_old=row.lag is not None and not StalenessBound(row.max_lag).allows(row.lag),
        )
        for row in await named_rows(connection, SQL["engines"], {})
    ]


async def phase_require_live(connection: Connection, claims: PhaseClaims) -> datetime.datetime:
    """Return the time of the database's clock. Raises ApiError (409) unless the phase still runs under its fence.

    Call it in the transaction that acts on the answer.
    """
    cursor = await connection.execute(f"SELECT clock_timestamp() {_LIVE_PHASE}", _live_values(claims))
    return _phase_clock(await cursor.fetchone())


async def phase_lock(connection: Connection, claims: PhaseClaims) -> datetime.datetime:
    """Do as `phase_require_live`, and lock its job until the transaction ends.

    Admission and batch assembly of one job are serialised by this lock.
    """
    cursor = await connection.execute(
        f"SELECT clock_timestamp(), pg_advisory_xact_lock(%s) {_LIVE_PHASE}",
        [job_lock_number(claims.job_id), *_live_values(claims)],
    )
    return _phase_clock(await cursor.fetchone())


def job_lock_number(job_id: UUID) -> int:
    return job_id.int & ((1 << 63) - 1)


def _live_values(claims: PhaseClaims) -> list[object]:
    return [claims.phase_id, claims.job_id, claims.fence, claims.role.value, _LIVE]


def _phase_clock(row: TupleRow | None) -> datetime.datetime:
    if row is None:
        raise ApiError(
            HTTPStatus.CONFLICT, "The phase is over, or its fence is out of date.", code="stale_fence"
        )
    now: datetime.datetime = row[0]
    return now


def month_of(moment: datetime.datetime) -> datetime.date:
    """Return the month of `moment` in UTC: the partition of the nodes of a session opened then."""
    return moment.astimezone(datetime.UTC).date().replace(day=1)
