"""Bodies of requests: bounded one by one, and all of a process together.

It takes the ASGI messages of a request and returns its body. Invariant: a process buffers no more bytes of bodies than
its `BodyAccount` allows. A `Body` counts what it has read until it is released: once the request is parsed, or has
failed. Read a body only after its sender's credential was checked.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class BodyRefused(Exception):
    """The body is larger than is accepted (413), or too many arrive at once (503)."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class ClientGone(Exception):
    """The client closed its connection before its request was complete or answered."""


class BodyAccount:
    """Counts the bytes of bodies in memory; one per process."""

    def __init__(self, *, max_body_bytes: int, max_total_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self._max_total_bytes = max_total_bytes
        self._num_bytes = 0

    def body(self) -> "Body":
        return Body(self)

    def take(self, num_bytes: int) -> None:
        """Reserve these bytes. Raises BodyRefused (503): to wait would leave every body half read."""
        if self._num_bytes + num_bytes > self._max_total_bytes:
            raise BodyRefused(
                HTTPStatus.SERVICE_UNAVAILABLE, "Too many request bodies are being read at once; try again."
            )
        self._num_bytes += num_bytes

    def give_back(self, num_bytes: int) -> None:
        self._num_bytes -= num_bytes


class Body:
    """One body, as a context: its bytes are on the account until the context ends, or `release` is called."""

    def __init__(self, account: BodyAccount) -> None:
        self._account = account
        self._num_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """Read the whole body. Raises BodyRefused and ClientGone."""
        announced = (value for name, value in scope["headers"] if name == b"content-length")
        self._check_size(int(next(announced, 0)))
        chunks: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone("the client disconnected before its request was complete")
            if chunk := message.get("body", b""):
                self._check_size(self._num_bytes + len(chunk))
                self._account.take(len(chunk))
                self._num_bytes += len(chunk)
                chunks.append(chunk)
            if not message.get("more_body"):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def release(self) -> None:
        self._account.give_back(self._num_bytes)
        self._num_bytes = 0

    def _check_size(self, num_bytes: int) -> None:
        limit = self._account.max_body_bytes
        if num_bytes > limit:
            raise BodyRefused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The request body has more than {limit} bytes, the limit.",
            )
