"""What a heartbeat stores of its machine, and what its answer is built from: one statement for both.

Takes a machine's report; returns the machine as the database knows it, with its live phases and the jobs that it may
keep warm. Invariants: the row of another boot is not touched; all reads see one snapshot. All parameters are texts,
whatever their values, so that PostgreSQL prepares the statement once.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection

from seamlessflow.control_plane.worker_protocol.fleet_size import fleet_size
from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PhaseState
from seamlessflow.core.protocol.worker import EngineReport, Heartbeat
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, Role

JOBS_PER_PAGE = 16
NUM_PHASES_REMEMBERED = (
    64  # of a machine: a trainer whose turn here is longer ago has no process here any more
)


class SeenPhase(msgspec.Struct, frozen=True, kw_only=True):
    """A live phase. `version` is where it works from: an engine's desired one, for other roles the newest."""

    id: UUID
    job_id: UUID
    project_id: UUID
    role: Role
    fence: int
    state: PhaseState
    boot_id: UUID | None
    engines: list[EngineReport] | None
    served_version: int | None
    num_batches: int | None
    drain_grace_s: float | None
    gang_id: UUID | None
    gang_member: int | None
    version: int
    uri: str


class SeenJob(msgspec.Struct, frozen=True, kw_only=True):
    """A running job. `uri` is where the weights of its newest version are; None if the job was never published.

    `is_at_work` and `is_next`: whether a phase of it is live on the machine, or follows there.
    """

    id: UUID
    project_id: UUID
    model_path: str
    version: int
    uri: str | None
    created_at: datetime
    is_at_work: bool
    is_next: bool
    has_trainer_state: bool  # its last trainer ran on the machine
    has_trained: bool


class SeenMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine as it was before this heartbeat. `is_this_boot`: its row belongs to the boot that reports."""

    id: UUID
    name: str
    tags: list[str]
    pool: str
    is_cordoned: bool
    is_draining: bool
    is_this_boot: bool
    anchor_at: datetime | None
    received_at: datetime | None
    num_intervals: int  # of this boot, that are stored
    capabilities: dict[str, Any] | None
    released_devices: dict[str, str] | None
    granted: list[UUID]  # projects that may use its pool
    ledger_end_at: datetime | None  # read only for a heartbeat with intervals
    phases: list[SeenPhase]
    jobs: list[SeenJob]  # in the order of `core.scheduling.warm`
    ended_before_gang: UUID | None  # the job whose phase here ended last, to train next
    num_machines: int | None  # counted now and then

    @property
    def author(self) -> str:
        return f"machine:{self.name}"


def _literals(states: Sequence[str]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


_LIVE = f"p.state IN ({_literals(list(LIVE_PHASE_STATES))})"
_RUNNING = f"""
    j.state IN ({_literals([JobState.STARTING, JobState.RUNNING])}) AND j.desired = '{DesiredJobState.RUN}'"""
_SHOWN = "j.id, j.project_id, j.model_path, j.latest_version, j.created_at, j.train_fence > 0 AS has_trained"
_KNOWN = "working.job_ids || working.next_ids || working.trained_ids"
_WARMEST = "seen.is_at_work DESC, seen.is_next DESC, seen.has_trainer_state DESC, seen.created_at, seen.id"
_MACHINE = f"""
    cluster_machine m CROSS JOIN LATERAL (SELECT
        ARRAY(SELECT p.job_id FROM scheduling_phase p WHERE p.machine_id = m.id AND {_LIVE}) AS job_ids,
        ARRAY(SELECT coalesce(p.next_job_id, p.job_id) FROM scheduling_phase p
              WHERE p.machine_id = m.id AND {_LIVE} AND p.next_role <> '') AS next_ids,
        ARRAY(SELECT recent.job_id FROM (
                  SELECT p.job_id, p.role, p.fence FROM scheduling_phase p
                  WHERE p.machine_id = m.id AND p.role IN ({_literals(list(EXCLUSIVE_ROLES))})
                  ORDER BY p.fence DESC LIMIT {NUM_PHASES_REMEMBERED}) recent
              JOIN jobs_job j ON j.id = recent.job_id AND j.train_fence = recent.fence
              WHERE recent.role = '{Role.TRAIN}') AS trained_ids) working"""
_PHASES = f"""(
    SELECT coalesce(json_agg(seen), '[]') FROM (
        SELECT p.id, p.job_id, p.project_id, p.role, p.fence, p.state, p.boot_id, p.engines,
               p.served_version, p.num_batches, p.drain_grace_s, p.gang_id, p.gang_member, works_from.version, v.uri
        FROM scheduling_phase p JOIN jobs_job j ON j.id = p.job_id
        CROSS JOIN LATERAL (SELECT CASE p.role WHEN '{Role.ROLLOUT}' THEN p.desired_version
                                               ELSE j.latest_version END AS version) works_from
        LEFT JOIN policies_policyversion v ON v.job_id = p.job_id AND v.version = works_from.version
        WHERE p.machine_id = m.id AND {_LIVE}) seen)"""
_JOBS = f"""(
    SELECT coalesce(json_agg(json_build_object('id', seen.id, 'project_id', seen.project_id,
        'model_path', seen.model_path, 'version', seen.latest_version,
        'uri', (SELECT v.uri FROM policies_policyversion v
                WHERE v.job_id = seen.id AND v.version = seen.latest_version),
        'created_at', seen.created_at, 'is_at_work', seen.is_at_work, 'is_next', seen.is_next,
        'has_trainer_state', seen.has_trainer_state, 'has_trained', seen.has_trained)
        ORDER BY {_WARMEST}), '[]')
    FROM (SELECT * FROM (
              (SELECT {_SHOWN}, j.id = ANY (working.job_ids) AS is_at_work, j.id = ANY (working.next_ids) AS is_next,
                      j.id = ANY (working.trained_ids) AS has_trainer_state
               FROM jobs_job j
               WHERE {_RUNNING} AND j.id = ANY ({_KNOWN})
                     AND (NOT (m.is_cordoned OR m.is_draining) OR j.id = ANY (working.job_ids)))
              UNION ALL
              (SELECT {_SHOWN}, false AS is_at_work, false AS is_next, false AS has_trainer_state
               FROM jobs_job j
               WHERE {_RUNNING} AND j.id <> ALL ({_KNOWN}) AND NOT (m.is_cordoned OR m.is_draining)
               ORDER BY j.created_at, j.id LIMIT {JOBS_PER_PAGE} + %(offset)s::bigint)) seen
          ORDER BY {_WARMEST}
          LIMIT {JOBS_PER_PAGE} OFFSET %(offset)s::bigint) seen)"""
_SEEN = f"""
    SELECT row_to_json(seen)::text FROM (
        SELECT m.id, m.name, m.tags, m.pool, m.is_cordoned, m.is_draining,
               coalesce(h.boot_id = %(boot_id)s::uuid, false) AS is_this_boot, h.anchor_at, h.received_at,
               coalesce(h.num_intervals_acked, 0) AS num_intervals, h.capabilities,
               h.released_devices, ARRAY(SELECT g.project_id FROM cluster_poolgrant g WHERE g.pool = m.pool) AS granted,
               CASE WHEN %(num_sent)s::bigint > 0 THEN (
                   SELECT l.ended_at FROM telemetry_ledgerinterval l WHERE l.machine_id = m.id
                   ORDER BY l.started_at DESC LIMIT 1) END AS ledger_end_at,
               {_PHASES} AS phases, {_JOBS} AS jobs,
               (SELECT coalesce(p.next_job_id, p.job_id) FROM scheduling_phase p
                WHERE p.machine_id = m.id AND p.state = '{PhaseState.ENDED}' AND p.next_role = '{Role.TRAIN}'
                      AND p.fence = (SELECT q.fence FROM scheduling_phase q
                                     WHERE q.machine_id = m.id AND q.role IN ({_literals(list(EXCLUSIVE_ROLES))})
                                     ORDER BY q.fence DESC LIMIT 1)) AS ended_before_gang,
               CASE WHEN %(counts)s::bool THEN (SELECT count(*) FROM cluster_machine) END AS num_machines
        FROM {_MACHINE} LEFT JOIN cluster_machineheartbeat h ON h.machine_id = m.id
        WHERE m.id = %(machine_id)s::uuid) seen"""
_STORE = f"""
    WITH stored AS (
        UPDATE cluster_machineheartbeat
        SET received_at = %(now)s::timestamptz, interval_s = %(interval_s)s::float8,
            open_state = %(open_state)s, open_cause = %(open_cause)s,
            open_since_at = anchor_at + make_interval(secs => %(open_since_s)s::float8),
            num_in_flight = %(num_in_flight)s::int,
            num_intervals_acked = greatest(num_intervals_acked, %(num_sent)s::bigint),
            capabilities = coalesce(%(capabilities)s::jsonb, capabilities)
        WHERE machine_id = %(machine_id)s::uuid AND boot_id = %(boot_id)s::uuid)
    {_SEEN}"""
_LOCK = """
    SELECT FROM cluster_machineheartbeat
    WHERE machine_id = %(machine_id)s::uuid AND boot_id = %(boot_id)s::uuid FOR UPDATE"""
_MORE_JOBS = f"SELECT {_JOBS}::text FROM {_MACHINE} WHERE m.id = %(machine_id)s::uuid"

_seen = msgspec.json.Decoder(SeenMachine).decode
_jobs = msgspec.json.Decoder(list[SeenJob]).decode


def beat_store(
    *, machine_id: UUID, heartbeat: Heartbeat, interval_s: float, now: datetime
) -> SeenMachine | None:
    """Store the reported state if the heartbeat's boot is the stored one; return the machine, None if it is gone.

    `interval_s`: when the next heartbeat is due, which the caller passes on to the machine.
    All of its intervals count as stored: a caller that sends some stores them in the same transaction.
    """
    return _machine(_STORE, {**_parameters(machine_id, heartbeat, now), "interval_s": repr(interval_s)})


def machine_see(*, machine_id: UUID, boot_id: UUID) -> SeenMachine | None:
    """Return the machine as `beat_store` does, and store nothing."""
    return _machine(
        _SEEN, {"machine_id": str(machine_id), "boot_id": str(boot_id), "num_sent": "0", "offset": "0"}
    )


def boot_lock(*, machine_id: UUID, boot_id: UUID) -> bool:
    """Lock the machine's row until the transaction ends. Returns False if the row belongs to another boot."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, {"machine_id": str(machine_id), "boot_id": str(boot_id)})
        return bool(cursor.rowcount)


def jobs_see(*, machine_id: UUID, offset: int) -> list[SeenJob]:
    """Return one page of the running jobs, as `SeenMachine.jobs` is the first."""
    with connection.cursor() as cursor:
        cursor.execute(_MORE_JOBS, {"machine_id": str(machine_id), "offset": str(offset)})
        row = cursor.fetchone()
    return [] if row is None else _jobs(row[0])


def _machine(statement: str, parameters: Mapping[str, str | None]) -> SeenMachine | None:
    with connection.cursor() as cursor:
        cursor.execute(statement, {**parameters, "counts": str(fleet_size.is_old)})
        row = cursor.fetchone()
    if row is None:
        return None
    machine = _seen(row[0])
    fleet_size.note(machine.num_machines)
    return machine


def _parameters(machine_id: UUID, heartbeat: Heartbeat, now: datetime) -> dict[str, str | None]:
    in_flight = (report.num_in_flight for report in heartbeat.phases if report.num_in_flight is not None)
    reported, since_s = heartbeat.capabilities, heartbeat.open_since_s
    return {
        "machine_id": str(machine_id),
        "boot_id": str(heartbeat.boot_id),
        "now": now.isoformat(),
        "open_state": heartbeat.open_state or "",
        "open_cause": heartbeat.open_cause or "",
        "open_since_s": None if since_s is None else repr(since_s),
        "num_in_flight": next(map(str, in_flight), None),
        "num_sent": str(max((item.seq for item in heartbeat.intervals), default=-1) + 1),
        "capabilities": None if reported is None else msgspec.json.encode(reported).decode(),
        "offset": "0",
    }
