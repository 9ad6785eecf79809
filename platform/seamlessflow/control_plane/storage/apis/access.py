"""Checks who may delete and who may edit retention policies, by the table of operations."""

from http import HTTPStatus
from uuid import UUID

from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.accounts.selectors.access import Access
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.retention.planner import RemovalKind


def deletion_check(access: Access, project: Project, *, kind: RemovalKind, subject: UUID) -> None:
    """Allow owners to delete anything in their project, members what they created. Raises ApplicationError (403)."""
    things = Artifact.objects if kind is RemovalKind.UPLOAD else Job.objects
    author_id = things.filter(id=subject).values_list("created_by_id", flat=True).first()
    access.check(Operation.STORED_DELETE, project.id, author_id=author_id)


def defaults_check(access: Access) -> None:
    """Raise ApplicationError (403) unless the caller may edit the policy of the installation."""
    if not access.is_operator:
        raise ApplicationError(
            "only operators may edit the retention policy of the installation", status=HTTPStatus.FORBIDDEN
        )
