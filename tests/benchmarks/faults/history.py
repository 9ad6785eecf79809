"""What happened to an installation, read from its rows and events and from what the clients
recorded.

It takes the database and the clients' own notes and returns a `History` of plain values, which
`checks` judges. It shares no code with the installation's audit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    state: str
    latest_version: int
    num_updates: int | None  # None: the job has no number of updates to reach
    submission_key: str | None
    max_tokens_per_turn: int
    rewards: tuple[float, float]  # the least and the greatest that its environment can give


@dataclass(frozen=True, slots=True)
class JobMove:
    """A move of a job, in the order of the server's own sequence."""

    job: str
    from_state: str
    to_state: str


@dataclass(frozen=True, slots=True)
class Phase:
    """A lease of a machine."""

    id: str
    job: str
    machine: str
    fence: int
    state: str


@dataclass(frozen=True, slots=True)
class PhaseMove:
    """A move of a phase, in the order of the server's own sequence, which no clock changes."""

    machine: str
    phase: str
    to_state: str


@dataclass(frozen=True, slots=True)
class Version:
    job: str
    version: int
    batch_number: int | None
    train_fence: int


@dataclass(frozen=True, slots=True)
class Group:
    job: str
    id: str
    state: str
    batch_number: int | None


@dataclass(frozen=True, slots=True)
class Session:
    job: str
    id: str
    group: str
    slot: int
    state: str
    reward: float | None
    is_timeout: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """A sampled node. `spans`: start, version, start, version …"""

    job: str
    session: str
    turn: str
    request: str | None
    num_tokens: int
    spans: tuple[int, ...]
    is_partial: bool


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of a machine's ledger, in seconds of the database's clock."""

    machine: str
    started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class MachineEdit:
    """An edit that the server recorded, in its sequence."""

    machine: str
    reason: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a client requested and what it was told: True (done), False (refused), None (no answer,
    so either is possible)."""

    verb: str  # submit or retag
    key: str  # the submission's key, the edit's reason
    is_done: bool | None


@dataclass(frozen=True, slots=True)
class History:
    jobs: Sequence[Job] = ()
    moves: Sequence[JobMove] = ()
    phases: Sequence[Phase] = ()
    phase_moves: Sequence[PhaseMove] = ()
    versions: Sequence[Version] = ()
    groups: Sequence[Group] = ()
    sessions: Sequence[Session] = ()
    answers: Sequence[Answer] = ()
    intervals: Sequence[Interval] = ()
    edits: Sequence[MachineEdit] = ()
    attempts: Sequence[Attempt] = ()


@dataclass(slots=True)
class Notes:
    """What the clients of a fault request, and what they are told."""

    attempts: list[Attempt] = field(default_factory=list)

    def note(self, verb: str, key: str, *, is_done: bool | None) -> None:
        self.attempts.append(Attempt(verb, key, is_done))


QUERIES: Mapping[str, tuple[type, str]] = {
    "jobs": (
        Job,
        """SELECT id::text, state, latest_version, (spec->'train'->>'num_updates')::int AS num_updates, submission_key,
                  (spec->'rollout'->>'max_tokens_per_turn')::int AS max_tokens_per_turn, ARRAY[0, 1] AS rewards
           FROM jobs_job WHERE id = ANY(%(jobs)s)""",
    ),
    "moves": (
        JobMove,
        """SELECT job_id::text AS job, from_state, to_state FROM common_event
           WHERE job_id = ANY(%(jobs)s) AND kind = 'job.state' ORDER BY id""",
    ),
    "phases": (
        Phase,
        """SELECT p.id::text, p.job_id::text AS job, m.name AS machine, fence, state
           FROM scheduling_phase p JOIN cluster_machine m ON m.id = p.machine_id""",
    ),
    "phase_moves": (
        PhaseMove,
        """SELECT m.name AS machine, p.id::text AS phase, to_state FROM common_event e
           JOIN scheduling_phase p ON p.id = e.subject_id JOIN cluster_machine m ON m.id = p.machine_id
           WHERE e.kind = 'phase.state' ORDER BY e.id""",
    ),
    "versions": (
        Version,
        """SELECT job_id::text AS job, version, batch_number, train_fence FROM policies_policyversion
           WHERE job_id = ANY(%(jobs)s) ORDER BY job_id, version""",
    ),
    "groups": (
        Group,
        """SELECT job_id::text AS job, id::text, state, batch_number FROM trajectory_group
           WHERE job_id = ANY(%(jobs)s)""",
    ),
    "sessions": (
        Session,
        """SELECT job_id::text AS job, id::text, group_id::text AS group, slot, state, reward, is_timeout
           FROM trajectory_session WHERE job_id = ANY(%(jobs)s)""",
    ),
    "answers": (
        Answer,
        """SELECT job_id::text AS job, session_id::text AS session, turn_id::text AS turn,
                  encode(request_digest, 'hex') AS request, num_tokens, version_spans AS spans, is_partial
           FROM trajectory_node WHERE job_id = ANY(%(jobs)s) AND kind = 2""",
    ),
    "intervals": (
        Interval,
        """SELECT m.name AS machine, extract(epoch FROM started_at)::float AS started_at,
                  extract(epoch FROM ended_at)::float AS ended_at
           FROM telemetry_ledgerinterval i JOIN cluster_machine m ON m.id = i.machine_id""",
    ),
    "edits": (
        MachineEdit,
        """SELECT m.name AS machine, e.reason FROM common_event e JOIN cluster_machine m ON m.id = e.subject_id
           WHERE e.kind = 'machine.edited' ORDER BY e.id""",
    ),
}


def history_read(database_url: str, jobs: Sequence[UUID], notes: Notes) -> History:
    """Read all of these jobs, and the leases, intervals and edits of every machine."""
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        rows = {
            name: [_record(kind, row) for row in connection.execute(query, {"jobs": list(jobs)})]
            for name, (kind, query) in QUERIES.items()
        }
    return History(**rows, attempts=tuple(notes.attempts))


def _record(kind: Callable[..., Record], row: Mapping[str, Any]) -> Record:
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()})
