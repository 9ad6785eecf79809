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
from seamlessflow.data_plane.store.connection import Connection

_LIVE = sorted(state.value for state in LIVE_PHASE_STATES)
_TERMINAL = sorted(state.value for state in TERMINAL_JOB_STATES)
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
    cursor = await connection.execute(
        """SELECT id, project_id, name, state, spec, model_path, tasks_path, evaluation_tasks_path,
                  coalesce((dataset->>'num_groups')::int, 0)
           FROM jobs_job WHERE id = %s""",
        [job_id],
    )
    row = await cursor.fetchone()
    return None if row is None else JobRow(*row)


async def jobs_ended_and_waiting(
    connection: Connection, job_ids: list[UUID]
) -> tuple[set[UUID], dict[UUID, str]]:
    """Return which of the jobs are over, and why others wait, as the scheduler says it to people."""
    cursor = await connection.execute(
        """SELECT id, state = ANY(%(terminal)s),
                  CASE WHEN state = %(paused)s THEN 'the job is paused' ELSE waiting_reason END
           FROM jobs_job
           WHERE id = ANY(%(jobs)s) AND (waiting_reason <> '' OR state = %(paused)s OR state = ANY(%(terminal)s))""",
        {"jobs": job_ids, "terminal": _TERMINAL, "paused": JobState.PAUSED.value},
    )
    rows = await cursor.fetchall()
    ended = {job_id for job_id, is_over, _ in rows if is_over}
    return ended, {job_id: reason for job_id, is_over, reason in rows if not is_over}


async def engines_read(connection: Connection, *, secret: str) -> list[Engine]:
    """Read the engine table: the engines of active rollout phases that have an endpoint and a version.

    An engine is too old if everything that it samples now would be beyond the job's staleness bound.
    """
    cursor = await connection.execute(
        """SELECT p.id, e.replica, p.job_id, e.endpoint, e.served_version, p.fence,
                  (j.spec->'rollout'->>'max_num_seqs')::int, m.name, jsonb_array_length(p.engines) > 1,
                  p.desired_version > e.served_version,
                  CASE WHEN v.version IS NOT NULL THEN j.published_batch - coalesce(v.batch_number, 0) END,
                  (j.spec->'algorithm'->>'max_staleness')::int
           FROM scheduling_phase p JOIN jobs_job j ON j.id = p.job_id JOIN cluster_machine m ON m.id = p.machine_id
           CROSS JOIN LATERAL jsonb_to_recordset(p.engines) AS e (replica int, endpoint text, served_version bigint)
           LEFT JOIN policies_policyversion v ON v.job_id = p.job_id AND v.version = e.served_version
           WHERE p.role = %s AND p.state = %s AND e.endpoint <> '' AND e.served_version IS NOT NULL
           ORDER BY p.id, e.replica""",
        [Role.ROLLOUT.value, PhaseState.ACTIVE.value],
    )
    rows = await cursor.fetchall()
    return [
        Engine(
            phase_id=phase,
            replica=replica,
            job_id=job,
            endpoint=endpoint.rstrip("/"),
            version=version,
            token=front_token(phase, fence, secret=secret),
            num_slots=num_slots,
            machine=machine,
            has_siblings=bool(has_siblings),
            is_behind=is_behind,
            is_too_old=lag is not None and not StalenessBound(max_lag).allows(lag),
        )
        for phase, replica, job, endpoint, version, fence, num_slots, *rest in rows
        for machine, has_siblings, is_behind, lag, max_lag in (rest,)
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
