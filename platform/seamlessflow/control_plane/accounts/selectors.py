"""Who may see what. Every query of the API is narrowed by an `Access`."""

from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone

from seamlessflow.control_plane.accounts.models import (
    Membership,
    MembershipRole,
    Project,
    Token,
    TokenKind,
    User,
)
from seamlessflow.control_plane.accounts.secrets import secret_digest
from seamlessflow.control_plane.common.errors import ApplicationError, field_error

# `last_used_at` is for people; a write on each request would cost more than it tells.
LAST_USED_PRECISION = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Access:
    """What one caller may do: a signed-in user in all of their projects, a token in its own."""

    user: User
    readable: frozenset[UUID]
    writable: frozenset[UUID]

    @property
    def author(self) -> str:
        """The name in events."""
        return f"user:{self.user.username}"

    @property
    def is_operator(self) -> bool:
        """May edit machines, which belong to the installation."""
        return self.user.is_staff

    def check_write(self, project_id: UUID) -> None:
        """Raises ApplicationError (403) for a viewer."""
        if project_id not in self.writable:
            raise ApplicationError("viewers of a project may not change it", status=HTTPStatus.FORBIDDEN)

    def check_operator(self) -> None:
        """Raises ApplicationError (403) for anybody but staff."""
        if not self.is_operator:
            raise ApplicationError("only staff may change machines", status=HTTPStatus.FORBIDDEN)


def access_of(*, user: User, token: Token | None) -> Access:
    """A token narrows its user's memberships to its project; a superuser is an owner everywhere."""
    if user.is_superuser:
        roles = dict.fromkeys(Project.objects.values_list("id", flat=True), MembershipRole.OWNER)
    else:
        roles = {
            project_id: MembershipRole(role)
            for project_id, role in Membership.objects.filter(user=user).values_list("project_id", "role")
        }
    if token is not None:
        roles = {project_id: role for project_id, role in roles.items() if project_id == token.project_id}
    return Access(
        user=user,
        readable=frozenset(roles),
        writable=frozenset(key for key, role in roles.items() if role != MembershipRole.VIEWER),
    )


def token_find(*, secret: str, kind: TokenKind) -> Token | None:
    """The live token of this secret."""
    now = timezone.now()
    return (
        Token.objects.filter(kind=kind, digest=secret_digest(secret), revoked_at=None)
        .filter(Q(expires_at=None) | Q(expires_at__gt=now))
        .select_related("user", "machine")
        .first()
    )


def token_touch(*, token: Token) -> None:
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at > LAST_USED_PRECISION:
        Token.objects.filter(id=token.id).update(last_used_at=now)


def token_list_visible(*, access: Access) -> QuerySet[Token]:
    """API tokens of the caller's projects."""
    return (
        Token.objects.filter(kind=TokenKind.API, project_id__in=access.readable)
        .select_related("project", "user")
        .order_by("-created_at")
    )


def project_list_readable(*, access: Access) -> QuerySet[Project]:
    return Project.objects.filter(id__in=access.readable).order_by("slug")


def project_for_write(*, access: Access, slug: str | None) -> Project:
    """The named project, or the only one the caller may write in. Raises ApplicationError."""
    projects = list(project_list_readable(access=access))
    accepted = ", ".join(project.slug for project in projects) or "none: you are in no project"
    chosen = [project for project in projects if project.slug == slug] if slug else projects
    if slug is None and len(projects) > 1:
        chosen = [project for project in projects if project.slug == "default"]
    if not chosen:
        raise field_error(
            "project", f"{slug or 'nothing'!r} is not one of your projects; accepted: {accepted}"
        )
    access.check_write(chosen[0].id)
    return chosen[0]
