"""Stores a publication with everything that follows from it: one statement.

Takes a job whose row the caller has locked, and a publication that it has checked. Writes the version, the job's
newest version, what its engines should serve, and the event; notifies gateways and scheduler when that commits.
"""

# ruff: noqa: S608 - the statement is put together from constants, values are parameters

from uuid import UUID

from django.db import connection

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import ENGINES_CHANNEL, SCHEDULER_CHANNEL
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.worker import Publication
from seamlessflow.core.types.tags import Role

_SERVING = ", ".join(f"'{state}'" for state in (PhaseState.LEASED, PhaseState.STARTING, PhaseState.ACTIVE))
_STORE = f"""
    WITH published AS (
        INSERT INTO policies_policyversion (id, project_id, job_id, phase_id, train_fence, version, parent_version,
            optimizer_step, batch_number, uri, manifest_sha256, num_bytes, checkpoint_uri, is_pinned, published_at)
        VALUES (%(id)s, %(project_id)s, %(job_id)s, %(phase_id)s, %(fence)s::bigint, %(version)s::bigint,
                %(parent_version)s::bigint, %(optimizer_step)s::bigint, %(batch_number)s::bigint, %(uri)s::text,
                %(manifest_sha256)s::text, %(num_bytes)s::bigint, %(checkpoint_uri)s::text, false,
                %(now)s::timestamptz)
        RETURNING id, project_id, job_id, version, batch_number, optimizer_step, published_at),
    counted AS (
        UPDATE jobs_job j SET latest_version = v.version, published_batch = v.batch_number, num_failures = 0
        FROM published v WHERE j.id = v.job_id),
    wanted AS (
        UPDATE scheduling_phase p SET desired_version = v.version
        FROM published v
        WHERE p.job_id = v.job_id AND p.role = '{Role.ROLLOUT}' AND p.state IN ({_SERVING})
              AND p.desired_version < v.version),
    recorded AS (
        INSERT INTO common_event (project_id, subject_type, subject_id, job_id, kind, from_state, to_state, reason,
                                  author, data, at)
        SELECT project_id, '{SubjectType.VERSION}', id, job_id, 'version.published', '', '', '', %(author)s::text,
               jsonb_build_object('version', version, 'batch_number', batch_number, 'optimizer_step', optimizer_step),
               published_at
        FROM published)
    SELECT pg_notify('{ENGINES_CHANNEL}', job_id::text),
           pg_notify('{SCHEDULER_CHANNEL}', 'version ' || version || ' of job ' || job_id || ' was published')
    FROM published"""


def publication_store(*, project_id: UUID, claims: PhaseClaims, publication: Publication) -> None:
    """Store a publication of the job that `claims` names. Call this under a lock of the job's row."""
    parameters: dict[str, UUID | str] = {
        "id": new_id(),
        "project_id": project_id,
        "job_id": claims.job_id,
        "phase_id": claims.phase_id,
        "fence": str(claims.fence),
        "version": str(publication.version),
        "parent_version": str(publication.parent_version),
        "optimizer_step": str(publication.optimizer_step),
        "batch_number": str(publication.batch_number),
        "uri": publication.uri,
        "manifest_sha256": publication.manifest_sha256,
        "num_bytes": str(publication.num_bytes),
        "checkpoint_uri": publication.checkpoint_uri or "",
        "now": database_now().isoformat(),
        "author": f"phase:{claims.phase_id}",
    }
    with connection.cursor() as cursor:
        cursor.execute(_STORE, parameters)
