"""Which requests are the same: by their bodies, and by the marks that clients give to requests that they send again.

It takes a request's marks and body, and the session's requests in flight. Out: the request's digest, and the end of the
wait for the same request. Invariant: no request cancels another one whose client may still read the answer.
"""

import hashlib
from dataclasses import dataclass

from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession


@dataclass(frozen=True, slots=True)
class Marks:
    """Of one request. `is_resent`: its client has given up an earlier one with the same body."""

    idempotency_key: str = ""
    is_resent: bool = False

    @property
    def is_retry(self) -> bool:
        """Whether the recorded answer is delivered again even if it was sent in full."""
        return bool(self.idempotency_key) or self.is_resent

    def digest(self, body: bytes) -> bytes:
        """Return the digest that identifies the request: of its body and, if there is one, of its key."""
        key = self.idempotency_key
        digest = hashlib.sha256(f"{key}\n".encode() if key else b"")
        digest.update(body)
        return digest.digest()

    async def wait_for_same(self, session: LiveSession, digest: bytes) -> None:
        """Wait until the turn of the same request has ended, unless this one is another turn."""
        if self.idempotency_key:  # the first client may still read the answer, so its request goes on
            while (flight := session.in_flight.get(digest)) is not None:
                await flight.ended()
            return
        flight = session.in_flight.get(digest)
        if flight is None:
            return
        if self.is_resent:
            flight.cancel()
            await flight.ended()
        elif flight.has_client_left:  # one whose client waits is another turn
            await flight.ended()
