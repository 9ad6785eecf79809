"""Stores a publication with everything that follows from it: one statement.

Takes a job whose row the caller has locked, and a publication that it has checked. Writes the version, the job's
newest version, what its engines should serve, and the event; notifies gateways and scheduler when that commits.
"""

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
from seamlessflow.runtime.sql import statements

SQL = statements(
    __name__, PhaseState, Role, SubjectType, engines_channel=ENGINES_CHANNEL, scheduler_channel=SCHEDULER_CHANNEL
)  # fmt: skip


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
        cursor.execute(SQL["store"], parameters)
