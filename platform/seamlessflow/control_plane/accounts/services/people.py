"""Writes on people, projects and tokens. Secrets are returned and never stored."""

from collections.abc import Collection
from datetime import datetime, timedelta
from http import HTTPStatus

from django.db import transaction
from django.utils import timezone

from seamlessflow.control_plane.accounts.models import (
    PROJECT_SCOPES,
    Membership,
    MembershipRole,
    Project,
    Token,
    TokenKind,
    User,
)
from seamlessflow.control_plane.accounts.selectors.access import Access
from seamlessflow.control_plane.accounts.selectors.secrets import secret_digest, secret_make
from seamlessflow.control_plane.accounts.services.records import account_record, member_record, project_record
from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.common.errors import ApplicationError, field_error
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record
from seamlessflow.core.access.minting import Minter, MintingRefused, expiry_granted, scopes_granted
from seamlessflow.core.access.operations import Operation, Scope

OWNER_NAME = "admin"
SYSTEM = "system"
DEFAULT_PROJECT = "default"
SIGN_IN_TTL = timedelta(hours=24)


@transaction.atomic
def owner_ensure() -> User:
    """Create the installation's first user and project; nothing changes if they exist. The user has no password."""
    user, is_new = User.objects.get_or_create(
        username=OWNER_NAME, defaults={"is_staff": True, "is_superuser": True}
    )
    if is_new:
        user.set_unusable_password()
        user.save(update_fields=["password"])
        account_record(user=user, kind="account.created", author=SYSTEM, after={"username": OWNER_NAME})
    project, is_new = Project.objects.get_or_create(slug=DEFAULT_PROJECT, defaults={"name": "Default"})
    if is_new:
        project_record(
            project=project, kind="project.created", author=SYSTEM, after={"slug": DEFAULT_PROJECT}
        )
    owner, is_new = Membership.objects.get_or_create(
        user=user, project=project, defaults={"role": MembershipRole.OWNER}
    )
    if is_new:
        member_record(owner, "member.added", SYSTEM, role=owner.role)
    return user


def api_token_create(
    *,
    user: User,
    project: Project | None,
    name: str,
    author: str,
    scopes: Collection[str] = PROJECT_SCOPES,
    expires_at: datetime | None = None,
) -> tuple[Token, str]:
    """Create a token for one project, or for the installation. Callers check permissions first."""
    token = Token(
        kind=TokenKind.API,
        name=name,
        user=user,
        project=project,
        scopes=sorted(str(scope) for scope in scopes),
        expires_at=expires_at,
    )
    return _token_create(token, author=author)


def api_token_mint(
    *,
    access: Access,
    project: Project | None,
    name: str,
    scopes: Collection[Scope] | None,
    days: int | None,
) -> tuple[Token, str]:
    """Create the token that the caller asks for, within the caller's own rights. No project: for the installation.

    Raises ApplicationError: 403 for more than that.
    """
    own = access.token
    minter = Minter(
        is_operator=access.is_operator,
        is_project_token=own is not None and own.project_id is not None,
        scopes=access.scopes,
        expires_at=own.expires_at if own is not None else None,
    )
    try:
        granted = scopes_granted(scopes, minter, is_installation=project is None)
        expires_at = expiry_granted(days, minter, now=timezone.now())
    except MintingRefused as error:
        status = HTTPStatus.FORBIDDEN if error.is_excess else HTTPStatus.BAD_REQUEST
        raise field_error(error.field, error.detail, status=status) from error
    return api_token_create(
        user=access.user,
        project=project,
        name=name,
        author=access.author,
        scopes=granted,
        expires_at=expires_at,
    )


def machine_token_create(*, machine: Machine, author: str) -> tuple[Token, str]:
    return _token_create(Token(kind=TokenKind.MACHINE, name=machine.name, machine=machine), author=author)


def sign_in_token_create(*, user: User, author: str) -> tuple[Token, str]:
    """Return a secret that signs a browser in. It works once, within a day."""
    token = Token(
        kind=TokenKind.SIGN_IN, name="sign-in link", user=user, expires_at=timezone.now() + SIGN_IN_TTL
    )
    return _token_create(token, author=author)


@transaction.atomic
def _token_create(token: Token, *, author: str) -> tuple[Token, str]:
    secret = secret_make(TokenKind(token.kind))
    token.digest = secret_digest(secret)
    token.save()
    _event(token, "token.created", author, scopes=token.scopes)
    return token, secret


def token_revocation_check(*, access: Access, token: Token) -> None:
    """Raise ApplicationError (403) unless the caller may revoke it: operators may revoke a machine's token, operators
    and its user one of the installation."""
    is_project_s, is_own = token.project_id is not None, token.user_id == access.user.id
    if token.kind == TokenKind.MACHINE:
        access.check(Operation.MACHINE_EDIT)
    elif is_project_s or is_own or access.is_operator:
        access.check(Operation.TOKEN_REVOKE, token.project_id, author_id=token.user_id)
    else:
        raise ApplicationError("only its user and operators may revoke it", status=HTTPStatus.FORBIDDEN)


@transaction.atomic
def token_revoke(*, token: Token, author: str) -> None:
    """Make the token's secret useless. Revoking twice changes nothing."""
    if not Token.objects.filter(id=token.id, revoked_at=None).update(revoked_at=timezone.now()):
        return
    _event(token, "token.revoked", author)


def _event(token: Token, kind: str, author: str, **data: object) -> None:
    event_record(
        kind=kind,
        subject_type=SubjectType.TOKEN,
        subject_id=token.id,
        project_id=token.project_id,
        author=author,
        data={"kind": token.kind, "name": token.name, **data},
    )


@transaction.atomic
def sign_in_token_use(*, secret: str) -> User | None:
    """Use up the link and return its user; None if it is used, expired or unknown. Only one caller succeeds."""
    now = timezone.now()
    links = Token.objects.filter(kind=TokenKind.SIGN_IN, digest=secret_digest(secret), user__is_active=True)
    if not links.filter(revoked_at=None, expires_at__gt=now).update(revoked_at=now, last_used_at=now):
        return None
    token = Token.objects.select_related("user").get(digest=secret_digest(secret))
    assert token.user is not None  # the table's constraint on sign-in links
    _event(token, "token.used", f"user:{token.user.username}")
    return token.user
