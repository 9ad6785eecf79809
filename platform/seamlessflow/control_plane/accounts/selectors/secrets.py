"""Secrets of tokens: made here, shown once, stored as their SHA-256.

The secrets have 256 random bits, so a fast digest is enough: there is nothing to guess.
"""

import hashlib
import secrets

from seamlessflow.control_plane.accounts.models import TokenKind

PREFIXES = {TokenKind.API: "sft_", TokenKind.MACHINE: "sfm_", TokenKind.SIGN_IN: "sfl_"}


def secret_make(kind: TokenKind) -> str:
    return PREFIXES[kind] + secrets.token_urlsafe(32)


def secret_digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
