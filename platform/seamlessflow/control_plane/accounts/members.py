"""Members of a project: adding them, changing their roles and removing them.

Invariants: a project keeps an owner even if two owners remove each other at the same moment; each change leaves an
event; removing a member revokes their tokens of the project for good.
"""

from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet

from seamlessflow.control_plane.accounts.models import (
    Membership,
    MembershipRole,
    Project,
    Token,
    TokenKind,
    User,
)
from seamlessflow.control_plane.accounts.selectors import Access
from seamlessflow.control_plane.accounts.services import sign_in_token_create, token_revoke
from seamlessflow.control_plane.common.errors import conflict, field_error, not_found
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record
from seamlessflow.core.access.operations import Operation


@dataclass(frozen=True, slots=True)
class Added:
    """A new member. `sign_in_link` is set only for a new account; it works once, within a day."""

    membership: Membership
    sign_in_link: str = ""


def project_get(*, access: Access, slug: str, operation: Operation) -> Project:
    """Return the project. Raises ApplicationError: 404 if the caller cannot see it, 403 if the operation is not
    allowed.
    """
    project = Project.objects.filter(slug=slug, id__in=access.readable).first()
    if project is None:
        raise not_found("project", slug)
    access.check(operation, project.id)
    return project


def member_list(*, project: Project) -> QuerySet[Membership]:
    return Membership.objects.filter(project=project).select_related("user").order_by("user__username")


@transaction.atomic
def member_add(
    *, project: Project, username: str, role: MembershipRole, is_invited: bool, author: str
) -> Added:
    """Add a user; one who has no account gets one if `is_invited`. Raises ApplicationError."""
    user = User.objects.filter(username=username).first()
    link = ""
    if user is None:
        if not is_invited:
            raise field_error(
                "username",
                f"there is no account {username!r}; accepted: an existing account, or `invite: true` to create it",
            )
        user, link = _account_make(username, author)
    elif not user.is_active:
        raise field_error("username", f"the account {username!r} is closed; an administrator can reopen it")
    membership, is_new = Membership.objects.get_or_create(user=user, project=project, defaults={"role": role})
    if not is_new:
        raise conflict(
            f"{username!r} is already in the project as {membership.role}; change the role instead"
        )
    _event(membership, "member.added", author, role=role.value)
    return Added(membership, link)


@transaction.atomic
def member_change(*, project: Project, username: str, role: MembershipRole, author: str) -> Membership:
    """Change the member's role. Raises ApplicationError: 404, or 409 for the last owner."""
    membership = _locked(project, username)
    before = membership.role
    if before == role:
        return membership
    _keep_an_owner(membership)
    membership.role = role
    membership.save(update_fields=["role"])
    _event(membership, "member.changed", author, role=role.value, before=before)
    return membership


@transaction.atomic
def member_remove(*, project: Project, username: str, author: str) -> None:
    """Remove a member, revoke their project tokens and close their open pages. Raises ApplicationError: 404, 409."""
    membership = _locked(project, username)
    _keep_an_owner(membership)
    tokens = Token.objects.filter(
        kind=TokenKind.API, project=project, user_id=membership.user_id, revoked_at=None
    )
    for token in tokens:
        token_revoke(token=token, author=author)
    _event(membership, "member.removed", author, before=membership.role)
    membership.delete()


def _account_make(username: str, author: str) -> tuple[User, str]:
    """Create an account without a password: its user signs in by link, and memberships give its rights."""
    try:
        UnicodeUsernameValidator()(username)
    except ValidationError as error:
        raise field_error(
            "username", f"{username!r} is not accepted; accepted: letters, digits and @ . + - _"
        ) from error
    user = User.objects.create_user(username=username)
    _, secret = sign_in_token_create(user=user, author=author)
    return user, f"{settings.WEB_URL}/signin/{secret}"


def _locked(project: Project, username: str) -> Membership:
    """Lock the project's row, so that its members change one at a time."""
    Project.objects.select_for_update().get(id=project.id)
    membership = Membership.objects.filter(project=project, user__username=username).select_related("user")
    found = membership.first()
    if found is None:
        raise not_found("member", username)
    return found


def _keep_an_owner(membership: Membership) -> None:
    if membership.role != MembershipRole.OWNER:
        return
    owners = Membership.objects.filter(
        project_id=membership.project_id, role=MembershipRole.OWNER, user__is_active=True
    )
    if not owners.exclude(id=membership.id).exists():
        raise conflict(
            f"{membership.user.username!r} is the last owner of the project; make someone else an owner first"
        )


def _event(membership: Membership, kind: str, author: str, **data: str) -> None:
    event_record(
        kind=kind,
        subject_type=SubjectType.PROJECT,
        subject_id=membership.project_id,
        project_id=membership.project_id,
        author=author,
        data={"username": membership.user.username, **data},
    )
