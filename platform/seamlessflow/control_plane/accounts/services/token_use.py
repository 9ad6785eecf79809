"""Stores when a token was last used.

Takes a token that was just accepted. Invariant: at most one write a minute.
"""

from datetime import timedelta

from django.utils import timezone

from seamlessflow.control_plane.accounts.models import Token

# `last_used_at` is only shown to people; writing it on each request would cost too much.
LAST_USED_PRECISION = timedelta(minutes=1)


def token_touch(*, token: Token) -> None:
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at > LAST_USED_PRECISION:
        Token.objects.filter(id=token.id).update(last_used_at=now)
