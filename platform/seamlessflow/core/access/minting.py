"""Which scopes a new API token may have, and when it expires.

Takes the requested rights and the limits of the token that asks (a browser session has none), and returns the scopes
and the moment of expiry. Invariant: a token never makes one that may do more, or that lives longer, than itself.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from seamlessflow.core.access.operations import Scope

DEFAULT_SCOPES = frozenset({Scope.READ, Scope.SUBMIT, Scope.SESSIONS})
DEFAULT_LIFETIME_DAYS = 90
MAX_LIFETIME_DAYS = 365


class MintingRefused(ValueError):
    """The token cannot be created as requested. `is_excess`: it would get rights that the caller may not give."""

    def __init__(self, field: str, detail: str, *, is_excess: bool = False) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field
        self.detail = detail
        self.is_excess = is_excess


@dataclass(frozen=True, slots=True)
class Minter:
    """The caller who creates a token. `scopes` and `expires_at` are those of the caller's own token; None means no
    limit.
    """

    is_operator: bool
    is_project_token: bool
    scopes: Collection[Scope] | None = None
    expires_at: datetime | None = None


def scopes_granted(
    asked: Collection[Scope] | None, minter: Minter, *, is_installation: bool
) -> frozenset[Scope]:
    """Return the new token's scopes. The default is those of DEFAULT_SCOPES that the minter may give. Raises
    MintingRefused.
    """
    if is_installation and (minter.is_project_token or not minter.is_operator):
        raise MintingRefused(
            "installation",
            "only operators may create tokens for the installation, and not with a project's token",
            is_excess=True,
        )
    possible = frozenset(Scope) if is_installation else frozenset(Scope) - {Scope.OPERATE}
    accepted = possible if minter.scopes is None else possible & frozenset(minter.scopes)
    wanted = DEFAULT_SCOPES & accepted if asked is None else frozenset(asked)
    shown = ", ".join(sorted(accepted)) or "none"
    if not wanted:
        raise MintingRefused("scopes", f"must name at least one scope; accepted: {shown}")
    if excess := sorted(wanted - accepted):
        detail = f"'{excess[0]}' cannot be given to this token; accepted: {shown}"
        raise MintingRefused("scopes", detail, is_excess=True)
    return wanted


def expiry_granted(days: int | None, minter: Minter, *, now: datetime) -> datetime:
    """Return when the token expires: by default after DEFAULT_LIFETIME_DAYS, or with the minter's own token if that is
    earlier. Raises MintingRefused."""
    if days is not None and not 1 <= days <= MAX_LIFETIME_DAYS:
        raise MintingRefused(
            "expires_in_days", f"{days} is not accepted; accepted: 1 to {MAX_LIFETIME_DAYS} days"
        )
    end = now + timedelta(days=DEFAULT_LIFETIME_DAYS if days is None else days)
    latest = minter.expires_at
    if latest is None or end <= latest:
        return end
    if days is None:
        return latest
    left = (latest - now) // timedelta(days=1)
    detail = f"{days} days is longer than the token of this request lasts; accepted: up to {left}"
    raise MintingRefused("expires_in_days", detail, is_excess=True)
