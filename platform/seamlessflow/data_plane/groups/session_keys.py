"""The keys of sessions, derived from the installation's secret.

Only their digests are stored, yet a session's opener can get its key again if the first answer was lost.
"""

import base64
import hmac
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.data_plane.store.api_keys import key_digest, session_api_key


@dataclass(frozen=True, slots=True)
class SessionKeys:
    secret_key: str

    def key(self, session_id: UUID) -> str:
        """Return the API key of a session."""
        code = hmac.digest(self.secret_key.encode(), b"session key " + session_id.bytes, "sha256")
        return session_api_key(session_id, base64.urlsafe_b64encode(code).decode().rstrip("="))

    def is_known(self, session_id: UUID, digest: bytes) -> bool:
        """Return whether the key behind `digest` can be derived again; not if it was made with another secret."""
        return hmac.compare_digest(key_digest(self.key(session_id)), digest)
