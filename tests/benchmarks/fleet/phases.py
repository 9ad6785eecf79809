"""Reads from the rows of phases who held how many machines at a moment, and how fast machines turned to a job."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

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
    WHERE after.job_id = %(job)s AND before.job_id <> %(job)s
      AND before.draining_at IS NOT NULL AND before.ended_at IS NOT NULL
"""
_SERVED = """
    SELECT extract(epoch FROM min(i.started_at) - j.created_at)::float8
    FROM jobs_job j LEFT JOIN telemetry_ledgerinterval i ON i.job_id = j.id AND i.state = 'serving'
    WHERE j.id = %(job)s GROUP BY j.id
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


@dataclass(frozen=True, slots=True)
class Phases:
    database_url: str

    def num_held(self, job_id: str, at: datetime) -> int:
        """Return how many machines worked for a job or were starting to."""
        return int(self._rows(_HELD, job_id, at=at)[0][0])

    def turned_s(self, job_id: str, role: str) -> Sequence[float]:
        """Return how long machines that worked for others in a role took to turn to the job, once ordered to."""
        return [float(seconds) for was, seconds in self._rows(_TURNED, job_id) if was == role]

    def first_served_s(self, job_id: str) -> float | None:
        """Return how long after its submission the job was first served; None if the ledger does not tell yet."""
        seconds = self._rows(_SERVED, job_id)[0][0]
        return None if seconds is None else float(seconds)

    def left_s(self, job_id: str, at: datetime) -> Sequence[float]:
        """Return for each machine that the job held how long after a moment it worked again; inf: not yet."""
        return [float(seconds) for (seconds,) in self._rows(_LEFT, job_id, at=at)]

    def num_failed_steps(self, job_id: str) -> int:
        return int(self._rows(_FAILED_STEPS, job_id)[0][0])

    def _rows(self, query: str, job_id: str, **values: object) -> list[tuple[Any, ...]]:
        parameters = {"job": parse_id(IdKind.JOB, job_id), **values}
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(query, parameters).fetchall()
