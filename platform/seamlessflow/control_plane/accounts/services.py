"""Writes on people, projects and tokens. Secrets leave as return values and are stored nowhere."""

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from seamlessflow.control_plane.accounts.models import (
    Membership,
    MembershipRole,
    Project,
    Token,
    TokenKind,
    User,
)
from seamlessflow.control_plane.accounts.secrets import secret_digest, secret_make
from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record

OWNER_NAME = "admin"
DEFAULT_PROJECT = "default"
SIGN_IN_TTL = timedelta(hours=24)


@transaction.atomic
def owner_ensure() -> User:
    """The installation's first user and project; nothing changes if they exist. The user has no password."""
    user, is_new = User.objects.get_or_create(
        username=OWNER_NAME, defaults={"is_staff": True, "is_superuser": True}
    )
    if is_new:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    project, _ = Project.objects.get_or_create(slug=DEFAULT_PROJECT, defaults={"name": "Default"})
    Membership.objects.get_or_create(user=user, project=project, defaults={"role": MembershipRole.OWNER})
    return user


def api_token_create(*, user: User, project: Project, name: str, author: str) -> tuple[Token, str]:
    """A token for one project and its secret."""
    return _token_create(Token(kind=TokenKind.API, name=name, user=user, project=project), author=author)


def machine_token_create(*, machine: Machine, author: str) -> tuple[Token, str]:
    return _token_create(Token(kind=TokenKind.MACHINE, name=machine.name, machine=machine), author=author)


def sign_in_token_create(*, user: User, author: str) -> tuple[Token, str]:
    """A secret that signs a browser in, once, within a day."""
    token = Token(
        kind=TokenKind.SIGN_IN, name="sign-in link", user=user, expires_at=timezone.now() + SIGN_IN_TTL
    )
    return _token_create(token, author=author)


@transaction.atomic
def _token_create(token: Token, *, author: str) -> tuple[Token, str]:
    secret = secret_make(TokenKind(token.kind))
    token.digest = secret_digest(secret)
    token.save()
    event_record(
        kind="token.created",
        subject_type=SubjectType.TOKEN,
        subject_id=token.id,
        project_id=token.project_id,
        author=author,
        data={"kind": token.kind, "name": token.name},
    )
    return token, secret


@transaction.atomic
def token_revoke(*, token: Token, author: str) -> None:
    """From now on the secret opens nothing. Revoking twice changes nothing."""
    if not Token.objects.filter(id=token.id, revoked_at=None).update(revoked_at=timezone.now()):
        return
    event_record(
        kind="token.revoked",
        subject_type=SubjectType.TOKEN,
        subject_id=token.id,
        project_id=token.project_id,
        author=author,
        data={"kind": token.kind, "name": token.name},
    )


def sign_in_token_use(*, secret: str) -> User | None:
    """The user whom the link signs in; None if it was used, has expired or never was. One caller wins."""
    now = timezone.now()
    links = Token.objects.filter(kind=TokenKind.SIGN_IN, digest=secret_digest(secret), user__is_active=True)
    if not links.filter(revoked_at=None, expires_at__gt=now).update(revoked_at=now, last_used_at=now):
        return None
    return User.objects.get(tokens__digest=secret_digest(secret))
