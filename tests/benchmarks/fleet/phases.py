"""Reads from the rows of phases who held how many machines, how fast machines turned to a job, and what failed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from seamlessflow.core.types.ids import IdKind, parse_id

_HELD = """
    SELECT count(*) FROM scheduling_phase
    WHERE job_id = %(job)s AND role <> 'agent' AND leased_at <= %(at)s
      AND coalesce(draining_at, ended_at, 'infinity') > %(at)s
"""
# A machine has turned once the phase that worked for another job has ended.
_TURNED = """
    SELECT before.role, extract(epoch FROM before.ended_at - before.draining_at)::float8
    FROM scheduling_phase before
    JOIN scheduling_phase after ON after.machine_id = before.machine_id AND after.fence = (
        SELECT min(fence) FROM scheduling_phase p WHERE p.machine_id = before.machine_id AND p.fence > before.fence)
    WHERE after.job_id = %(job)s AND before.job_id = ANY(%(others)s)
      AND before.draining_at IS NOT NULL AND before.ended_at IS NOT NULL
"""
# A machine that trains is not told to drain: it turns by itself once its step is published.
_AFTER_STEPS = """
    SELECT count(*) FROM scheduling_phase before
    JOIN scheduling_phase after ON after.machine_id = before.machine_id AND after.fence = (
        SELECT min(fence) FROM scheduling_phase p WHERE p.machine_id = before.machine_id AND p.fence > before.fence)
    WHERE after.job_id = %(job)s AND before.job_id = ANY(%(others)s)
      AND before.role = 'train' AND before.state = 'ended'
"""
# An engine that serves without a break closes its interval after ten seconds only; until then, its machine says so.
_SERVED = """
    SELECT extract(epoch FROM min(serving.since_at) - j.created_at)::float8
    FROM jobs_job j LEFT JOIN (
        SELECT job_id, started_at AS since_at FROM telemetry_ledgerinterval WHERE state = 'serving'
        UNION ALL
        SELECT p.job_id, greatest(h.open_since_at, p.active_at) FROM scheduling_phase p
        JOIN cluster_machineheartbeat h ON h.machine_id = p.machine_id
        WHERE p.role = 'rollout' AND p.state = 'active' AND h.open_state = 'serving') serving ON serving.job_id = j.id
    WHERE j.id = %(job)s GROUP BY j.id
"""
_ACTIVE = """
    SELECT count(*) FROM scheduling_phase
    WHERE job_id = %(job)s AND role = 'rollout' AND active_at IS NOT NULL
"""
_LEFT = """
    SELECT extract(epoch FROM coalesce(after.active_at, 'infinity') - %(at)s) AS left_s
    FROM scheduling_phase before
    LEFT JOIN scheduling_phase after ON after.machine_id = before.machine_id AND after.fence = (
        SELECT min(fence) FROM scheduling_phase p WHERE p.machine_id = before.machine_id AND p.fence > before.fence)
    WHERE before.job_id = %(job)s AND before.role <> 'agent' AND before.leased_at <= %(at)s
      AND coalesce(before.ended_at, 'infinity') > %(at)s
    ORDER BY left_s
"""
_FAILED_STEPS = """
    SELECT count(*) FROM scheduling_phase WHERE job_id = %(job)s AND role = 'train' AND state = 'failed'
"""
_QUARANTINED = """
    SELECT min(e.at) FROM common_event e JOIN cluster_machine m ON m.id = e.subject_id
    WHERE m.name = %(machine)s AND e.kind = 'machine.quarantined' AND e.at >= %(since)s
"""
_FAILED_ON = """
    SELECT count(*) FROM scheduling_phase p JOIN cluster_machine m ON m.id = p.machine_id
    WHERE m.name = %(machine)s AND p.failure_cause = 'work' AND p.ended_at BETWEEN %(since)s AND %(until)s
"""
_FAILED_OF = """
    SELECT count(*), count(DISTINCT machine_id) FROM scheduling_phase
    WHERE job_id = %(job)s AND failure_cause = 'work'
"""


@dataclass(frozen=True, slots=True)
class Phases:
    database_url: str

    def num_held(self, job_id: str, at: datetime) -> int:
        """Return how many machines worked for a job or were starting to."""
        return int(self._rows(_HELD, job_id, at=at)[0][0])

    def turned_s(self, job_id: str, other_ids: Sequence[str]) -> Sequence[float]:
        """Return how long machines that rolled out for other jobs took to turn to the job, once ordered to."""
        turned = self._rows(_TURNED, job_id, others=_uuids(other_ids))
        return [float(seconds) for was, seconds in turned if was == "rollout"]

    def num_after_steps(self, job_id: str, other_ids: Sequence[str]) -> int:
        """Return how many machines turned to the job when they had ended a step of other jobs."""
        return int(self._rows(_AFTER_STEPS, job_id, others=_uuids(other_ids))[0][0])

    def first_served_s(self, job_id: str) -> float | None:
        """Return how long after its submission the job was first served, as far as machines have told; None if none
        has."""
        seconds = self._rows(_SERVED, job_id)[0][0]
        return None if seconds is None else float(seconds)

    def is_served(self, job_id: str) -> bool:
        """Whether an engine of the job answers. The ledger tells that later, once the engine has paused or ended."""
        return bool(self._rows(_ACTIVE, job_id)[0][0])

    def left_s(self, job_id: str, at: datetime) -> Sequence[float]:
        """Return for each machine that the job held how long after a moment it worked again; inf: not yet."""
        return [float(seconds) for (seconds,) in self._rows(_LEFT, job_id, at=at)]

    def num_failed_steps(self, job_id: str) -> int:
        return int(self._rows(_FAILED_STEPS, job_id)[0][0])

    def _rows(self, query: str, job_id: str, **values: object) -> list[tuple[Any, ...]]:
        parameters = {"job": parse_id(IdKind.JOB, job_id), **values}
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(query, parameters).fetchall()


def _uuids(job_ids: Sequence[str]) -> list[UUID]:
    return [parse_id(IdKind.JOB, one) for one in job_ids]


@dataclass(frozen=True, slots=True)
class Failures:
    database_url: str

    def quarantined_at(self, machine: str, since: datetime) -> datetime | None:
        """Return when a machine was quarantined first after a moment."""
        return self._row(_QUARANTINED, machine=machine, since=since)[0]  # type: ignore[no-any-return]

    def num_on(self, machine: str, since: datetime, until: datetime) -> int:
        return int(self._row(_FAILED_ON, machine=machine, since=since, until=until)[0])

    def of_job(self, job_id: str) -> tuple[int, int]:
        """Return how many phases of a job failed, and on how many machines."""
        num_phases, num_machines = self._row(_FAILED_OF, job=parse_id(IdKind.JOB, job_id))
        return int(num_phases), int(num_machines)

    def _row(self, query: str, **values: object) -> tuple[Any, ...]:
        with psycopg.connect(self.database_url) as connection:
            row = connection.execute(query, values).fetchone()
        assert row is not None  # each query counts
        return row
