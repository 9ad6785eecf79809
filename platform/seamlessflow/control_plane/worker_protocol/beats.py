"""What a heartbeat stores of its machine, and what its answer is built from: one statement for both.

Takes a machine's report; returns the machine as the database knows it, with its live phases and the jobs that it may
keep warm. Invariants: the row of another boot is not touched; all reads see one snapshot. All parameters are texts,
whatever their values, so that PostgreSQL prepares the statement once.
"""

from collections.abc import Mapping
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
from seamlessflow.runtime.sql import statements

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


SQL = statements(
    __name__, DesiredJobState, JobState, PhaseState, Role, live_states=LIVE_PHASE_STATES, exclusive=EXCLUSIVE_ROLES,
    per_page=JOBS_PER_PAGE, num_remembered=NUM_PHASES_REMEMBERED,
)  # fmt: skip

_seen = msgspec.json.Decoder(SeenMachine).decode
_jobs = msgspec.json.Decoder(list[SeenJob]).decode


def beat_store(
    *, machine_id: UUID, heartbeat: Heartbeat, interval_s: float, now: datetime
) -> SeenMachine | None:
    """Store the reported state if the heartbeat's boot is the stored one; return the machine, None if it is gone.

    `interval_s`: when the next heartbeat is due, which the caller passes on to the machine.
    All of its intervals count as stored: a caller that sends some stores them in the same transaction.
    """
    return _machine(SQL["store"], {**_parameters(machine_id, heartbeat, now), "interval_s": repr(interval_s)})


def machine_see(*, machine_id: UUID, boot_id: UUID) -> SeenMachine | None:
    """Return the machine as `beat_store` does, and store nothing."""
    return _machine(
        SQL["seen"], {"machine_id": str(machine_id), "boot_id": str(boot_id), "num_sent": "0", "offset": "0"}
    )


def boot_lock(*, machine_id: UUID, boot_id: UUID) -> bool:
    """Lock the machine's row until the transaction ends. Returns False if the row belongs to another boot."""
    with connection.cursor() as cursor:
        cursor.execute(SQL["lock"], {"machine_id": str(machine_id), "boot_id": str(boot_id)})
        return bool(cursor.rowcount)


def jobs_see(*, machine_id: UUID, offset: int) -> list[SeenJob]:
    """Return one page of the running jobs, as `SeenMachine.jobs` is the first."""
    with connection.cursor() as cursor:
        cursor.execute(SQL["more_jobs"], {"machine_id": str(machine_id), "offset": str(offset)})
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
