"""Watches the processes of the control plane: `/livez` of the web process, and a watchdog in each.

`/livez` is answered before Django. It needs neither the database nor a host name, so that a probe ends this process
only for its own fault.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.conf import settings

from seamlessflow.runtime.liveness import PATH, Liveness
from seamlessflow.runtime.watchdog import Watchdog

# The scheduler's loop waits for the database, and a slow database must not end it.
DATABASE_FACTOR = 4
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


def scheduler_watchdog() -> Watchdog:
    return Watchdog("the scheduler's loop", limit_s=settings.WATCHDOG_S * DATABASE_FACTOR)


class LiveApplication:
    """The outermost ASGI application: answers `/livez` and watches the event loop that serves it."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._watchdog = Watchdog("the web process's event loop", limit_s=settings.WATCHDOG_S)
        self._liveness = Liveness(self._watchdog)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http" and scope["path"] == PATH:
            await self._answer(send)
        else:
            await self._application(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self._watchdog.watch_loop(asyncio.get_running_loop())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._watchdog.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, send: Send) -> None:
        status, body = self._liveness.answer()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": int(status), "headers": headers})
        await send({"type": "http.response.body", "body": body})
