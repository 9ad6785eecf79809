"""What a project takes from the others: its weight, its quotas, and how far its priorities count. For operators.

Invariant: each edit leaves an event that says who and why, in the same transaction; one that changes nothing leaves
none. Leases of the scheduler's next cycle already follow it.
"""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.accounts.selectors.access import Access, project_list_readable
from seamlessflow.control_plane.common.errors import not_found
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record, scheduler_notify
from seamlessflow.core.access.operations import Operation

SHARE_FIELDS = ("weight", "machine_quota", "priority_ceiling", "queued_jobs_quota")


def share_project_get(*, access: Access, slug: str) -> Project:
    """Return the project whose share or grants the caller wants to edit. Raises ApplicationError: 404 if the caller
    cannot see it, 403 for all but operators, who see every project here."""
    visible = Project.objects.all() if access.is_operator else project_list_readable(access=access)
    project = visible.filter(slug=slug).first()
    if project is None:
        raise not_found("project", slug)
    access.check(Operation.SHARE_EDIT)
    return project


@transaction.atomic
def project_share_edit(*, project: Project, changes: Mapping[str, Any], reason: str, author: str) -> Project:
    """Change what a project takes from others. `changes`: some of SHARE_FIELDS."""
    project = Project.objects.select_for_update(no_key=True).get(id=project.id)
    before = {field: getattr(project, field) for field in SHARE_FIELDS if field in changes}
    after = {field: changes[field] for field in before}
    if before == after:
        return project
    for field, value in after.items():
        setattr(project, field, value)
    project.save(update_fields=list(after))
    share_record(project=project, before=before, after=after, reason=reason, author=author)
    return project


def share_record(
    *, project: Project, before: Mapping[str, Any], after: Mapping[str, Any], reason: str, author: str
) -> None:
    """Leave the event of an edit that was just saved."""
    event_record(
        kind="project.share",
        subject_type=SubjectType.PROJECT,
        subject_id=project.id,
        project_id=project.id,
        reason=reason,
        author=author,
        data={"before": dict(before), "after": dict(after)},
    )
    scheduler_notify(reason=f"project {project.slug} has another share")
