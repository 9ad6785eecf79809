"""Answers requests while the database keeps its connections open but stays silent, as a frozen host does.

Takes an ASGI application and returns it behind a clock. If a request has no answer after PATIENCE_S, this process asks
the database over a connection of its own. If that brings nothing either, the request is answered with 503, and others
are refused at once until the database answers again. A lost connection needs none of this: it raises an error, which
the views answer. Invariant: a request whose answer has begun is left alone.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import psycopg
from django.conf import settings
from django.http import HttpRequest

from seamlessflow.control_plane.common.database.availability import connection_arguments
from seamlessflow.control_plane.common.http.problems import database_away

PATIENCE_S = 5.0
ANSWER_S = 5.0  # how long the database may take to answer
FRESH_S = 1.0  # an answer counts for everybody who asks within this time

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
Application = Callable[[Any, Any, Any], Awaitable[None]]


class DatabaseGate:
    def __init__(self, application: Application) -> None:
        self._application = application
        self._database = _Database()
        self._left: set[asyncio.Future[None]] = (
            set()
        )  # answered for; their threads end with the database's silence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._database.is_away and not _is_static(scope) and not await self._database.answers():
            await _refuse(scope, send)
            return
        answer = _Answer(send)
        working = asyncio.ensure_future(self._application(scope, receive, answer.send))
        try:
            while not (await asyncio.wait({working}, timeout=PATIENCE_S))[0]:
                if not answer.has_begun and not await self._database.answers() and answer.take_over():
                    await _refuse(scope, send)
                    self._leave(working)
                    return
        except asyncio.CancelledError:
            working.cancel()
            raise
        await working

    def _leave(self, working: "asyncio.Future[None]") -> None:
        """Leave a request that cannot be ended, because its thread waits for the database. Its output is dropped."""
        self._left.add(working)
        working.add_done_callback(self._forget)

    def _forget(self, working: "asyncio.Future[None]") -> None:
        self._left.discard(working)
        if not working.cancelled():
            working.exception()  # no request waits for it any more


class _Answer:
    """The answer to one request; the application gives it, or else the gate."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_taken_over = False
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if not self._is_taken_over:
            self.has_begun = True
            await self._send(message)

    def take_over(self) -> bool:
        """Answer instead of the application. Returns False if the application was quicker."""
        self._is_taken_over = not self.has_begun
        return self._is_taken_over


class _Database:
    """Knows whether the database answers; one question serves everybody who wants to know."""

    def __init__(self) -> None:
        self.is_away = False
        self._asked_s = -FRESH_S
        self._asking: asyncio.Task[bool] | None = None

    async def answers(self) -> bool:
        if self._asking is None and time.monotonic() - self._asked_s < FRESH_S:
            return not self.is_away
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(ANSWER_S):
                connection = await psycopg.AsyncConnection.connect(**connection_arguments())
                async with connection:
                    await connection.execute("SELECT 1")
            self.is_away = False
        except TimeoutError:
            self.is_away = True
        except psycopg.OperationalError:
            self.is_away = False  # refused or lost: the views notice as quickly and answer
        finally:
            self._asked_s, self._asking = time.monotonic(), None
        return not self.is_away


def _is_static(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.startswith(settings.STATIC_URL)


async def _refuse(scope: Scope, send: Send) -> None:
    request = HttpRequest()
    request.path = scope["path"]
    response = database_away(request)
    headers = [(name.lower().encode(), value.encode()) for name, value in response.items()]
    headers.append((b"content-length", str(len(response.content)).encode()))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})
