"""Reads request bodies within a bound for each and a bound for all together.

A `HeldBody` counts what it has read until it is released: when its request has been turned into a prompt or a command,
or has failed. Only callers who have shown a credential get that far. Beyond the common bound the answer is 503: waiting
for room would end with every body half read.
"""

from http import HTTPStatus
from types import TracebackType

from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.routes.http import Receive, Scope, header


class ClientGone(Exception):
    """The client closed its connection before its request was complete."""


class BodyRoom:
    """Counts the bytes of bodies that this process holds; one per process."""

    def __init__(self, *, max_body_bytes: int, max_total_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self._max_total_bytes = max_total_bytes
        self._num_bytes = 0

    def hold(self) -> "HeldBody":
        return HeldBody(self)

    def take(self, num_bytes: int) -> None:
        """Take room for bytes. Raises ApiError (503)."""
        if self._num_bytes + num_bytes > self._max_total_bytes:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "The gateway holds too many request bodies; try again.",
                code="overloaded",
                headers={"retry-after": "1"},
            )
        self._num_bytes += num_bytes

    def give_back(self, num_bytes: int) -> None:
        self._num_bytes -= num_bytes


class HeldBody:
    """The room that one body takes. Use as a context, or call `release` as soon as the bytes are no longer needed."""

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self._num_bytes = 0

    def __enter__(self) -> "HeldBody":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """Read the whole body. Raises ApiError (413, 503) and ClientGone."""
        self._check_size(int(header(scope, b"content-length") or 0))
        chunks: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone("the client left before its request was complete")
            if chunk := message.get("body", b""):
                self._check_size(self._num_bytes + len(chunk))
                self._room.take(len(chunk))
                self._num_bytes += len(chunk)
                chunks.append(chunk)
            if not message.get("more_body"):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def release(self) -> None:
        self._room.give_back(self._num_bytes)
        self._num_bytes = 0

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > self._room.max_body_bytes:
            raise ApiError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The request body is larger than {self._room.max_body_bytes} bytes.",
            )
