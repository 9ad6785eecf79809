"""The protocols that a dialect implements: how it reads a request, and how it writes an answer or an error.

`serving/turn_service` serves every dialect in the same way. Invariant: a dialect does no input or output, and keeps no
state beyond the reply to one turn.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from seamlessflow.data_plane.dialects.turn_request import TurnRequest
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, Turn

Options = TypeVar("Options")


class Reply(Protocol):
    """Encodes the answers of one turn: `whole`, or a stream from `opening` to `closing` or `failure`."""

    def whole(self) -> bytes:
        """Return the body of an answer that is not streamed."""

    def opening(self) -> bytes:
        """Return the first events of a stream."""

    def deltas(self, choice: Choice, deltas: Sequence[Delta]) -> bytes:
        """Return the events for what one answer has gained."""

    def keepalive(self) -> bytes:
        """Return what keeps a silent stream open."""

    def closing(self) -> bytes:
        """Return the last events; every answer has ended and is recorded."""

    def failure(self, error: ApiError) -> bytes:
        """Return the last event of a stream that failed after its head was sent."""


class Dialect(Protocol[Options]):
    @property
    def path(self) -> str: ...

    def parse(self, raw: bytes, *, temperature: float) -> TurnRequest[Options]:
        """Parse a body; the job fixes `temperature` for this session. Raises ApiError (400), which names the field."""

    def reply(self, turn: Turn, request: TurnRequest[Options], *, created_s: int) -> Reply: ...

    def status(self, error: ApiError) -> int:
        """Return the status of a refusal: an API may have one of its own for an error."""

    def error(self, error: ApiError) -> bytes:
        """Return the body of a refusal, in the words by which the clients of this API know the error."""
