"""Members of a project: adding them, changing their roles and removing them.

Invariants: a project keeps an owner even if two owners remove each other at the same moment; each change leaves an
event; removing a member revokes their tokens of the project for good.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

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
from seamlessflow.control_plane.accounts.selectors.access import Access
from seamlessflow.control_plane.accounts.services.people import sign_in_token_create, token_revoke
from seamlessflow.control_plane.accounts.services.records import account_record, member_record
from seamlessflow.control_plane.common.errors import conflict, field_error, not_found
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
    member_record(membership, "member.added", author, role=role.value)
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
    member_record(membership, "member.changed", author, role=role.value, before=before)
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
    member_record(membership, "member.removed", author, before=membership.role)
    membership.delete()


@transaction.atomic
def members_edit(
    *,
    project: Project,
    removed: Collection[str] = (),
    added: Mapping[str, MembershipRole] = MappingProxyType({}),
    changed: Mapping[str, MembershipRole] = MappingProxyType({}),
    author: str,
) -> None:
    """Make several changes, all or none. New owners come first, so that one may replace the last. Raises
    ApplicationError."""
    for username, role in added.items():
        member_add(project=project, username=username, role=role, is_invited=False, author=author)
    for username, role in sorted(changed.items(), key=lambda one: one[1] != MembershipRole.OWNER):
        member_change(project=project, username=username, role=role, author=author)
    for username in removed:
        member_remove(project=project, username=username, author=author)


def owner_give(*, project: Project, user: User, author: str) -> None:
    """Make the user an owner of a project that has none."""
    if _owners(project.id).exists():
        return
    if Membership.objects.filter(project=project, user=user).exists():
        members_edit(project=project, changed={user.username: MembershipRole.OWNER}, author=author)
    else:
        members_edit(project=project, added={user.username: MembershipRole.OWNER}, author=author)


def closing_check(user: User) -> None:
    """Raise ApplicationError (409) if a project would have no owner without this account."""
    for owned in Membership.objects.filter(user=user, role=MembershipRole.OWNER).select_related(
        "user", "project"
    ):
        _keep_an_owner(owned)


def _account_make(username: str, author: str) -> tuple[User, str]:
    """Create an account without a password: its user signs in by link, and memberships give its rights."""
    try:
        UnicodeUsernameValidator()(username)
    except ValidationError as error:
        raise field_error(
            "username", f"{username!r} is not accepted; accepted: letters, digits and @ . + - _"
        ) from error
    user = User.objects.create_user(username=username)
    account_record(user=user, kind="account.created", author=author, after={"username": username})
    _, secret = sign_in_token_create(user=user, author=author)
    return user, f"{settings.WEB_URL}/signin/{secret}"


def _locked(project: Project, username: str) -> Membership:
    """Lock the project's row, so that its members change one at a time."""
    Project.objects.select_for_update().get(id=project.id)
    found = (
        Membership.objects.filter(project=project, user__username=username)
        .select_related("user", "project")
        .first()
    )
    if found is None:
        raise not_found("member", username)
    return found


def _keep_an_owner(membership: Membership) -> None:
    if membership.role != MembershipRole.OWNER:
        return
    if not _owners(membership.project_id).exclude(id=membership.id).exists():
        raise conflict(
            f"{membership.user.username!r} is the last owner of the project {membership.project.slug!r}; make someone "
            "else an owner first"
        )


def _owners(project_id: UUID) -> QuerySet[Membership]:
    return Membership.objects.filter(project_id=project_id, role=MembershipRole.OWNER, user__is_active=True)
