"""Bodies of requests: bounded one by one, and all of a process together.

It takes the ASGI messages of a request and returns its body, whole or as it arrives. Invariant: a process buffers no
more bytes of bodies than its `BodyAccount`s allow. A `Body` counts what it has read until it is released: once the
request is parsed, or has failed. Read a body only after its sender's credential was checked.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

Scope = Mapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
RETRY_AFTER_S = 1


class BodyRefused(Exception):
    """The body is not taken: it is larger than is accepted (413), or too many arrive at once (503), for example."""

    def __init__(self, status: HTTPStatus, detail: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after_s = retry_after_s


class ClientGone(Exception):
    """The client closed its connection before its request was complete or answered."""


class BodyAccount:
    """Counts the bytes of bodies in memory."""

    def __init__(self, *, max_body_bytes: int, max_total_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self._max_total_bytes = max_total_bytes
        self._num_bytes = 0

    def body(self, max_bytes: int | None = None) -> "Body":
        """Return one body, of at most `max_bytes` if that is less than the account accepts."""
        return Body(self, max_bytes)

    def take(self, num_bytes: int) -> None:
        """Reserve these bytes. Raises BodyRefused (503): to wait would leave every body half read."""
        if self._num_bytes + num_bytes > self._max_total_bytes:
            message = "Too many request bodies are being read at once; try again."
            raise BodyRefused(HTTPStatus.SERVICE_UNAVAILABLE, message, retry_after_s=RETRY_AFTER_S)
        self._num_bytes += num_bytes

    def give_back(self, num_bytes: int) -> None:
        self._num_bytes -= num_bytes


class Body:
    """One body, as a context: its bytes are on the account until the context ends, or `release` is called."""

    def __init__(self, account: BodyAccount, max_bytes: int | None = None) -> None:
        self._account = account
        self._max_bytes = account.max_body_bytes if max_bytes is None else max_bytes
        self._num_read = 0
        self._num_taken = 0  # from the account: those that were read, or reserved

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """Read the whole body. Raises BodyRefused and ClientGone."""
        self.check(announced_bytes(scope))
        return await body_whole(receive, self.count)

    def reserve(self, num_bytes: int) -> None:
        """Take bytes from the account before they arrive. Raises BodyRefused."""
        self._account.take(num_bytes)
        self._num_taken += num_bytes

    def count(self, num_bytes: int) -> None:
        """Count bytes that have arrived. Raises BodyRefused."""
        self._num_read += num_bytes
        self.check(self._num_read)
        if self._num_read > self._num_taken:
            self.reserve(self._num_read - self._num_taken)

    def check(self, num_bytes: int) -> None:
        """Raise BodyRefused (413) if a body of this size is too large."""
        if num_bytes > self._max_bytes:
            message = f"The request body has more than {self._max_bytes} bytes, the limit."
            raise BodyRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)

    def release(self) -> None:
        self._account.give_back(self._num_taken)
        self._num_taken = 0


def announced_bytes(scope: Scope) -> int:
    """Return the request's Content-Length, which the server has checked; 0 if there is none."""
    return int(next((value for name, value in scope["headers"] if name == b"content-length"), 0))


async def body_whole(receive: Receive, count: Callable[[int], None] | None = None) -> bytes:
    """Return the body, each chunk counted as it arrives. Raises ClientGone and what `count` raises."""
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("the client disconnected before its request was complete")
        if chunk := message.get("body", b""):
            if count is not None:
                count(len(chunk))
            chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
