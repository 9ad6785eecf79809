"""Who may see what. Every query of the API is narrowed by an `Access`, and every change is checked against it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone

from seamlessflow.control_plane.accounts.models import (
    Membership,
    Project,
    Token,
    TokenKind,
    User,
)
from seamlessflow.control_plane.accounts.selectors.secrets import secret_digest
from seamlessflow.control_plane.common.errors import ApplicationError, field_error
from seamlessflow.core.access.operations import (
    RULES,
    Operation,
    ProjectRole,
    Scope,
    operator_refusal,
    role_refusal,
    scope_refusal,
)
from seamlessflow.core.access.projects import ProjectNotChosen, chosen_project


@dataclass(frozen=True, slots=True)
class Access:
    """What one caller may do: a signed-in user in all of their projects, a token within its scopes.

    `roles`: the role in each project that the caller can see. `scopes`: those of the token; None for a browser session.
    """

    user: User
    roles: Mapping[UUID, ProjectRole]
    scopes: frozenset[Scope] | None
    is_operator: bool  # an operator of the installation edits machines and sees every pool
    token: Token | None = None

    @property
    def author(self) -> str:
        """The caller's name in events."""
        return f"user:{self.user.username}"

    @property
    def readable(self) -> frozenset[UUID]:
        return frozenset(self.roles)

    def may(self, operation: Operation, project_id: UUID, *, author_id: UUID | None = None) -> bool:
        return self._refusal(operation, project_id, author_id) is None

    def check(
        self, operation: Operation, project_id: UUID | None = None, *, author_id: UUID | None = None
    ) -> None:
        """Raise ApplicationError (403) if the operation is refused. `author_id`: the user who created the object."""
        refusal = self._refusal(operation, project_id, author_id)
        if refusal is not None:
            raise ApplicationError(refusal, status=HTTPStatus.FORBIDDEN)

    def _refusal(self, operation: Operation, project_id: UUID | None, author_id: UUID | None) -> str | None:
        if RULES[operation].is_operators:
            return operator_refusal(operation, is_operator=self.is_operator)
        refusal = scope_refusal(operation, self.scopes)
        if refusal is not None or project_id is None:
            return refusal
        return role_refusal(operation, self.roles.get(project_id), is_own=author_id == self.user.id)


def access_of(*, user: User, token: Token | None) -> Access:
    """Return what a caller may do. A project's token narrows its user's memberships to that project; superusers own
    every project."""
    return access_within(user=user, roles=roles_of_users([user])[user.id], token=token)


def roles_of_users(users: Iterable[User]) -> dict[UUID, dict[UUID, ProjectRole]]:
    """Return each user's roles by project, in two queries at most."""
    users = list(users)
    roles: dict[UUID, dict[UUID, ProjectRole]] = {user.id: {} for user in users}
    if any(user.is_superuser for user in users):
        everywhere = dict.fromkeys(Project.objects.values_list("id", flat=True), ProjectRole.OWNER)
        roles |= {user.id: everywhere for user in users if user.is_superuser}
    others = [user.id for user in users if not user.is_superuser]
    memberships = Membership.objects.filter(user_id__in=others) if others else Membership.objects.none()
    for user_id, project_id, role in memberships.values_list("user_id", "project_id", "role"):
        roles[user_id][project_id] = ProjectRole(role)
    return roles


def access_within(*, user: User, roles: Mapping[UUID, ProjectRole], token: Token | None) -> Access:
    """Return the user's access, narrowed to the token's project and scopes."""
    is_staff = user.is_staff or user.is_superuser
    if token is None:
        return Access(user=user, roles=roles, scopes=None, is_operator=is_staff)
    scopes = scopes_of(token)
    is_installation = token.project_id is None
    if not is_installation:
        roles = {project_id: role for project_id, role in roles.items() if project_id == token.project_id}
    is_operator = is_staff and is_installation and Scope.OPERATE in scopes
    return Access(user=user, roles=roles, scopes=scopes, is_operator=is_operator, token=token)


def scopes_of(token: Token) -> frozenset[Scope]:
    """Return the token's scopes that this release knows."""
    return frozenset(Scope(scope) for scope in token.scopes if scope in set(Scope))


def token_find(*, secret: str, kind: TokenKind) -> Token | None:
    """Return the live token with this secret; None if there is none."""
    tokens = _live(Token.objects.filter(kind=kind, digest=secret_digest(secret)))
    return tokens.select_related("user", "machine").first()


def tokens_live(token_ids: Collection[UUID]) -> dict[UUID, Token]:
    """Return the API tokens among these that still work."""
    return _live(Token.objects.filter(kind=TokenKind.API)).in_bulk(token_ids) if token_ids else {}


def _live(tokens: QuerySet[Token]) -> QuerySet[Token]:
    now = timezone.now()
    return tokens.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None)


def token_list_visible(*, access: Access) -> QuerySet[Token]:
    """Return the API tokens of the caller's projects, and those of the installation: operators see all, others their
    own.
    """
    visible = Q(project_id__in=access.readable)
    if access.is_operator:
        visible |= Q(project=None)
    elif access.token is None or access.token.project_id is None:
        visible |= Q(project=None, user=access.user)
    return (
        Token.objects.filter(visible, kind=TokenKind.API)
        .select_related("project", "user")
        .order_by("-created_at")
    )


def project_list_readable(*, access: Access) -> QuerySet[Project]:
    return Project.objects.filter(id__in=access.readable).order_by("slug")


def project_for(*, access: Access, slug: str | None, operation: Operation) -> Project:
    """Return the named project, or the caller's only one. Raises ApplicationError if there are several, or if the
    operation is refused there."""
    projects = {project.slug: project for project in project_list_readable(access=access)}
    try:
        project = projects[chosen_project(slug, list(projects))]
    except ProjectNotChosen as error:
        raise field_error("project", str(error)) from error
    access.check(operation, project.id)
    return project
