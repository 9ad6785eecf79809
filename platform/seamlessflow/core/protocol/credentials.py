"""Signed credentials of phases and engines.

The control plane signs; gateways verify without a database; workers only carry them. A credential is bound to one
phase (job, machine, role, fence), so a stale holder is recognised by its fence. The secret never reaches a worker.

Form: `sfp_<base64url(JSON claims)>.<base64url(HMAC-SHA256)>`.
"""

import base64
import binascii
import hashlib
import hmac
from uuid import UUID

import msgspec

from seamlessflow.core.types.tags import Role

PREFIX = "sfp_"


class PhaseClaims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims that a phase credential signs."""

    phase_id: UUID
    job_id: UUID
    project_id: UUID
    machine_id: UUID
    role: Role
    fence: int
    expires_at_s: int  # unix seconds


class InvalidCredential(ValueError):
    """The credential is malformed, forged or expired."""


def phase_credential_sign(claims: PhaseClaims, *, secret: str) -> str:
    body = _encode(msgspec.json.encode(claims))
    return f"{PREFIX}{body}.{_mac(body, purpose='phase', secret=secret)}"


def phase_credential_verify(credential: str, *, secret: str, now_s: float) -> PhaseClaims:
    """Return the claims. Raises InvalidCredential."""
    body, separator, mac = credential.removeprefix(PREFIX).partition(".")
    if not credential.startswith(PREFIX) or not separator:
        raise InvalidCredential("not a phase credential")
    if not hmac.compare_digest(mac.encode(), _mac(body, purpose="phase", secret=secret).encode()):
        raise InvalidCredential("the signature of the phase credential does not match")
    try:
        claims = msgspec.json.decode(
            base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=PhaseClaims
        )
    except (msgspec.DecodeError, binascii.Error) as error:
        raise InvalidCredential(f"the claims of the phase credential are malformed: {error}") from error
    if now_s >= claims.expires_at_s:
        raise InvalidCredential("the phase credential has expired")
    return claims


def front_token(phase_id: UUID, fence: int, *, secret: str) -> str:
    """Return the bearer token that gateways show to the front of one rollout phase."""
    return "sff_" + _mac(f"{phase_id}:{fence}", purpose="front", secret=secret)


def gang_secret(gang_id: UUID, fence: int, *, secret: str) -> str:
    """Return the secret that only the members of one gang know."""
    return "sfg_" + _mac(f"{gang_id}:{fence}", purpose="gang", secret=secret)


def _mac(text: str, *, purpose: str, secret: str) -> str:
    digest = hmac.new(secret.encode(), f"{purpose}:{text}".encode(), hashlib.sha256).digest()
    return _encode(digest)


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
