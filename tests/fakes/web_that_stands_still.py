"""The web application with one more path: `/stand-still` blocks the event loop that serves it, as a
fault would."""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from seamlessflow.control_plane.asgi import application as web

Message = MutableMapping[str, Any]


async def application(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] == "http" and scope["path"] == "/stand-still":
        time.sleep(600)  # noqa: ASYNC251 - that is the fault
    await web(scope, receive, send)
