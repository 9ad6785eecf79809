"""Events of changes of accounts, projects and their members: who changed what, before and after.

Takes a change that was just saved, in its transaction. Invariant: an event never contains a password or its hash.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from seamlessflow.control_plane.accounts.models import Membership, Project, User
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record

NOTHING: Mapping[str, Any] = {}


def account_record(
    *,
    user: User,
    kind: str,
    author: str,
    before: Mapping[str, Any] = NOTHING,
    after: Mapping[str, Any] = NOTHING,
) -> None:
    event_record(
        kind=kind,
        subject_type=SubjectType.ACCOUNT,
        subject_id=user.id,
        author=author,
        data={"username": user.username, "before": dict(before), "after": dict(after)},
    )


def project_record(
    *,
    project: Project,
    kind: str,
    author: str,
    before: Mapping[str, Any] = NOTHING,
    after: Mapping[str, Any] = NOTHING,
) -> None:
    event_record(
        kind=kind,
        subject_type=SubjectType.PROJECT,
        subject_id=project.id,
        project_id=project.id,
        author=author,
        data={"project": project.slug, "before": dict(before), "after": dict(after)},
    )


def member_record(membership: Membership, kind: str, author: str, **data: str) -> None:
    event_record(
        kind=kind,
        subject_type=SubjectType.PROJECT,
        subject_id=membership.project_id,
        project_id=membership.project_id,
        author=author,
        data={"username": membership.user.username, **data},
    )


@contextmanager
def password_recorded(user_id: str, *, author: str) -> Iterator[None]:
    """Leave an event if the block sets or removes the account's password."""
    with transaction.atomic():
        before = _password(user_id)
        yield
        if _password(user_id) != before:
            user = User.objects.get(pk=user_id)
            account_record(user=user, kind="account.password_set", author=author)


def _password(user_id: str) -> str | None:
    return User.objects.filter(pk=user_id).values_list("password", flat=True).first()
