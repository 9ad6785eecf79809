"""Pinning policy versions, which keeps their weights from retention.

Invariant: each change leaves one event, in the same transaction; repeating one changes nothing.
"""

from django.db import transaction

from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record
from seamlessflow.control_plane.policies.models import PolicyVersion


@transaction.atomic
def version_pin(*, version: PolicyVersion, is_pinned: bool, author: str) -> None:
    """Pin the version, or unpin it."""
    if not PolicyVersion.objects.filter(id=version.id, is_pinned=not is_pinned).update(is_pinned=is_pinned):
        return
    event_record(
        kind="version.pinned" if is_pinned else "version.unpinned",
        subject_type=SubjectType.VERSION,
        subject_id=version.id,
        project_id=version.project_id,
        job_id=version.job_id,
        author=author,
        data={
            "version": version.version,
            "before": {"is_pinned": not is_pinned},
            "after": {"is_pinned": is_pinned},
        },
    )
