"""Reads what the machines did between two moments: each job's trained tokens, machine time by job and state,
hand-overs, and prompts that were read again.

Takes the installation's database and REST API. A job's rate is counted from its first publication in the window to its
last, so it contains whole training steps only.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from seamlessflow.client import Client
from seamlessflow.core.types.ids import IdKind, parse_id

HAND_OVER = ("draining", "switching", "starting")
IDLE = "idle"
_TRAINED = """
    SELECT v.published_at, coalesce(m.value, 0)
    FROM policies_policyversion v
    LEFT JOIN telemetry_metricpoint m
      ON m.job_id = v.job_id AND m.step = v.version AND m.name = 'train/num_trained_tokens'
    WHERE v.job_id = %s AND v.version > 0 AND v.published_at BETWEEN %s AND %s
    ORDER BY v.version
"""
_READ_AGAIN = """
    SELECT coalesce(sum(num_read_again_tokens), 0) FROM scheduling_phase
    WHERE job_id = %s AND coalesce(draining_at, ended_at) BETWEEN %s AND %s
"""
_LOSSES = """
    SELECT (SELECT coalesce(sum(num_wasted_tokens), 0) FROM trajectory_node WHERE job_id = %(job)s AND kind = 2),
           (SELECT count(*) FROM trajectory_session
            WHERE job_id = %(job)s AND (state = 'failed' OR is_requeued))
"""
_HAND_OVERS = """
    SELECT extract(epoch FROM after.active_at - before.draining_at)::float8
    FROM scheduling_phase before
    JOIN scheduling_phase after ON after.machine_id = before.machine_id AND after.fence = (
        SELECT min(fence) FROM scheduling_phase p WHERE p.machine_id = before.machine_id AND p.fence > before.fence)
    WHERE before.draining_at BETWEEN %s AND %s AND after.active_at IS NOT NULL
"""
_BETWEEN_JOBS = " AND before.job_id <> after.job_id"


@dataclass(frozen=True, slots=True)
class Seen:
    """`rates`: trained tokens per second, by job; `seconds`: machine time by (job, state)."""

    duration_s: float
    num_machines: int
    rates: Mapping[str, float]
    seconds: Mapping[tuple[str, str], float]
    time_shares: Mapping[str, float]
    num_read_again: float
    hand_overs_s: Sequence[float]

    def share(self, *states: str) -> float:
        whole_s = self.duration_s * self.num_machines
        return sum(seconds for (_, state), seconds in self.seconds.items() if state in states) / whole_s

    def machine_s(self, job_id: str) -> float:
        """Return the machine time that was spent for a job, whatever on."""
        return sum(seconds for (job, _), seconds in self.seconds.items() if job == job_id)


@dataclass(frozen=True, slots=True)
class Observer:
    client: Client
    database_url: str
    machines: Sequence[str]

    def now(self) -> datetime:
        return self._rows("SELECT clock_timestamp()")[0][0]  # type: ignore[no-any-return]

    def num_published(self, job_id: str, since: datetime) -> int:
        return len(self._rows(_TRAINED, _uuid(job_id), since, self.now()))

    def rate(self, job_id: str, since: datetime, until: datetime) -> float:
        published = self._rows(_TRAINED, _uuid(job_id), since, until)
        if len(published) < 2:
            return 0.0
        duration_s = (published[-1][0] - published[0][0]).total_seconds()
        return float(sum(tokens for _, tokens in published[1:]) / duration_s)

    def losses(self, job_id: str) -> tuple[int, int]:
        """Return the job's wasted tokens and its sessions that failed or had to begin again."""
        ((num_tokens, num_sessions),) = self._rows(_LOSSES, {"job": _uuid(job_id)})
        return int(num_tokens), int(num_sessions)

    def hand_overs_s(self, since: datetime, until: datetime, *, is_between_jobs: bool = False) -> list[float]:
        """Return how long each hand-over took, from the order to drain until the next phase was active.

        `is_between_jobs`: only from one job to another. A machine turns to a step of the same job much
        sooner, because no engine has to wake.
        """
        query = _HAND_OVERS + _BETWEEN_JOBS if is_between_jobs else _HAND_OVERS
        return [float(seconds) for (seconds,) in self._rows(query, since, until)]

    def seen(self, job_ids: Sequence[str], since: datetime, until: datetime) -> Seen:
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        kinds: dict[str, float] = defaultdict(float)
        known = {one["name"]: one["id"] for one in self.client.machine_list()}
        for name in self.machines:
            ledger = self.client.machine_ledger(known[name], since=since.isoformat(), until=until.isoformat())
            for span in ledger["intervals"]:
                ended, started = map(datetime.fromisoformat, (span["ended_at"], span["started_at"]))
                seconds[span["job_id"] or "", span["state"]] += (ended - started).total_seconds()
            for total in ledger["totals"]:
                kinds[": ".join(filter(None, (total["state"], total["cause"])))] += total["duration_s"]
        duration_s = (until - since).total_seconds()
        return Seen(
            duration_s=duration_s,
            num_machines=len(self.machines),
            rates={job_id: self.rate(job_id, since, until) for job_id in job_ids},
            seconds=dict(seconds),
            time_shares={kind: s / (duration_s * len(self.machines)) for kind, s in kinds.items()},
            num_read_again=sum(
                float(self._rows(_READ_AGAIN, _uuid(job_id), since, until)[0][0]) for job_id in job_ids
            ),
            hand_overs_s=self.hand_overs_s(since, until),
        )

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        parameters = values[0] if values and isinstance(values[0], dict) else values
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(query, parameters).fetchall()


def _uuid(job_id: str) -> UUID:
    return parse_id(IdKind.JOB, job_id)
