"""Moves phases from state to state.

Invariant: `Phase.state` changes in `phase_move` only, by compare-and-set along `PHASE_MOVES`, with one event per
move. A caller that knows the fence passes it: a stale fence then changes nothing. A move, its event and its
notifications are one statement. A phase that fails because of what its job names pauses the job with it.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

import functools
import json
import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import ENGINES_CHANNEL, SCHEDULER_CHANNEL
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.services.moves import PLATFORM, job_desire
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.core.lifecycle.jobs import DesiredJobState
from seamlessflow.core.lifecycle.phases import PHASE_MOVES, FailureCause, PhaseState
from seamlessflow.core.types.tags import Role

# What a caller may set together with the state, with the types in the database. `engines` and
# `served_version` come from a supervisor's report; the others describe what follows a drain.
FIELDS = {
    "engines": "jsonb",
    "served_version": "bigint",
    "next_role": "text",
    "next_job_id": "uuid",
    "next_num_batches": "int",
    "next_reason": "text",
    "drain_grace_s": "float8",
}
_NO_ENGINES = "engines = CASE WHEN p.engines IS NOT NULL THEN '[]'::jsonb END"
# Moments and ends that belong to a state. An end is never ahead of the clock, because the next lease of the machine
# reads the clock and begins after it.
_ENDED_AT = "ended_at = least(%(now)s::timestamptz, clock_timestamp())"
_OF_STATE = {
    PhaseState.ACTIVE: "active_at = coalesce(p.active_at, %(now)s::timestamptz)",
    PhaseState.DRAINING: "draining_at = %(now)s::timestamptz",
    PhaseState.ENDED: f"{_ENDED_AT}, {_NO_ENGINES}",
    PhaseState.FAILED: f"{_ENDED_AT}, {_NO_ENGINES}, failure_cause = %(cause)s::text",
}
log = logging.getLogger(__name__)

_LOCK_JOB = """
    SELECT FROM jobs_job WHERE id = (SELECT job_id FROM scheduling_phase WHERE id = %s) FOR NO KEY UPDATE"""


def phase_move(
    *,
    phase_id: UUID,
    to: PhaseState,
    reason: str,
    author: str,
    fence: int | None = None,
    boot_id: UUID | None = None,
    fields: Mapping[str, Any] | None = None,
    cause: FailureCause = FailureCause.WORK,
) -> bool:
    """Move a phase by compare-and-set, and set `fields` (of FIELDS) with it. `cause`: why it failed, if it did.

    Returns False if its state does not allow the move, or if the fence is stale. Another move of the phase is waited
    for.
    """
    given = fields or {}
    parameters = {
        "phase_id": str(phase_id),
        "fence": _text(fence),
        "boot_id": _text(boot_id),
        "reason": reason,
        "author": author,
        "now": database_now().isoformat(),
        **{name: _text(value) for name, value in given.items()},
    }
    statement = _statement(to, tuple(sorted(given)))
    if to is PhaseState.FAILED:
        return _fail(phase_id, statement, {**parameters, "cause": cause.value})
    return _moved(statement, parameters) is not None


def _text(value: object) -> str | None:
    """Return a value as text: whatever it is, PostgreSQL then knows the statement by the same types."""
    if isinstance(value, list):
        return json.dumps(value)
    return None if value is None else str(value)


@functools.cache
def _statement(to: PhaseState, names: tuple[str, ...]) -> str:
    sources = ",".join(sorted(PHASE_MOVES.sources(to)))  # none for LEASED: phases begin there
    changes = [
        f"state = '{to}'",
        "reason = %(reason)s::text",
        "boot_id = coalesce(%(boot_id)s::uuid, p.boot_id)",
        *([_OF_STATE[to]] if to in _OF_STATE else []),
        *(f"{name} = %({name})s::{FIELDS[name]}" for name in names),
    ]
    changed = ", ".join(changes)
    # The words in single quotes are names of states, roles and channels, all of them constants.
    return f"""
    WITH known AS (
        SELECT id, state FROM scheduling_phase
        WHERE id = %(phase_id)s::uuid AND fence = coalesce(%(fence)s::bigint, fence)
              AND state = ANY (string_to_array('{sources}', ','))
        FOR NO KEY UPDATE),
    moved AS (
        UPDATE scheduling_phase p SET {changed} FROM known WHERE p.id = known.id
        RETURNING p.id, p.job_id, p.project_id, p.machine_id, p.role, p.gang_id, known.state AS from_state),
    recorded AS (
        INSERT INTO common_event (project_id, subject_type, subject_id, job_id, kind, from_state, to_state, reason,
                                  author, data, at)
        SELECT project_id, '{SubjectType.PHASE}', id, job_id, 'phase.state', from_state, '{to}', %(reason)s::text,
               %(author)s::text, jsonb_build_object('machine_id', machine_id::text, 'role', role),
               %(now)s::timestamptz
        FROM moved)
    SELECT job_id, gang_id,
           CASE role WHEN '{Role.ROLLOUT}' THEN pg_notify('{ENGINES_CHANNEL}', job_id::text)::text END,
           pg_notify('{SCHEDULER_CHANNEL}', 'phase ' || id || ' is {to}')
    FROM moved"""


def _moved(statement: str, parameters: Mapping[str, str | None]) -> tuple[UUID, UUID | None] | None:
    """Return the phase's job and its gang, if it has one; None if nothing was moved."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        row = cursor.fetchone()
    return None if row is None else (row[0], row[1])


@transaction.atomic
def _fail(phase_id: UUID, statement: str, parameters: Mapping[str, str | None]) -> bool:
    """Move a phase to FAILED. If the work itself failed, count that for its job (a gang fails once); if the job's
    spec would fail everywhere, pause it."""
    with connection.cursor() as cursor:
        # Lock the job before the phase, as a publication does: the other order could deadlock with it.
        cursor.execute(_LOCK_JOB, [phase_id])
    moved = _moved(statement, parameters)
    if moved is None:
        return False
    job_id, gang_id = moved
    if parameters["cause"] == FailureCause.WORK:
        if _has_failed_before(phase_id, gang_id):
            Phase.objects.filter(id=phase_id).update(failure_cause=FailureCause.GANG.value)
        else:
            Job.objects.filter(id=job_id).update(num_failures=F("num_failures") + 1)
    elif parameters["cause"] == FailureCause.INPUT:
        _job_pause(phase_id)
    return True


def _job_pause(phase_id: UUID) -> None:
    """Ask the job of a failed phase to pause, unless a person has resumed it since the phase was leased."""
    phase = Phase.objects.select_related("job", "machine").get(id=phase_id)
    resumed_at = phase.job.resumed_at
    if resumed_at is not None and resumed_at > phase.leased_at:
        return
    try:
        job_desire(
            job_id=phase.job_id,
            desired=DesiredJobState.PAUSE,
            reason=f"{phase.role} on {phase.machine.name}: {phase.reason}",
            author=PLATFORM,
        )
    except ApplicationError as fault:  # it was ended or cancelled meanwhile
        log.info("job %s is not paused: %s", phase.job_id, fault)


def _has_failed_before(phase_id: UUID, gang_id: UUID | None) -> bool:
    """Whether another member of the gang failed before. The lock on the job's row orders members."""
    fellows = Phase.objects.filter(gang_id=gang_id, state=PhaseState.FAILED).exclude(id=phase_id)
    return gang_id is not None and fellows.exists()
