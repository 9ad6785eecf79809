"""The API keys of sessions: a key names its session, and only its digest is stored."""

import functools
import hashlib
import secrets
from uuid import UUID

from seamlessflow.core.types.ids import IdKind, parse_id, show_id

KEY_PREFIX = "sfs_"
NUM_NAMES_KEPT = 4096


def session_api_key(session_id: UUID, secret: str | None = None) -> str:
    """Return the API key of a session, with `secret` or a random secret as its last part."""
    shown = show_id(IdKind.SESSION, session_id).partition("_")[2]
    return f"{KEY_PREFIX}{shown}_{secret or secrets.token_urlsafe(24)}"


def key_session(api_key: str) -> UUID | None:
    """Return the session that an API key names, whether or not the key is its own; None if it names none."""
    shown, separator, _ = api_key.removeprefix(KEY_PREFIX).partition("_")
    return _shown_session(shown) if api_key.startswith(KEY_PREFIX) and separator else None


@functools.lru_cache(maxsize=NUM_NAMES_KEPT)
def _shown_session(shown: str) -> UUID | None:
    """Return the session of this name, without the key's secret; each request asks twice."""
    try:
        return parse_id(IdKind.SESSION, f"{IdKind.SESSION}_{shown}")
    except ValueError:
        return None


def key_digest(api_key: str) -> bytes:
    return hashlib.sha256(api_key.encode()).digest()
