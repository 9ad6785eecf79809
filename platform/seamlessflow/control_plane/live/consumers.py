"""The socket `/ws/live`: the client names topics, the server sends snapshots, then deltas.

First message: `{"subscribe": ["jobs", "job:<id>", "group:<id>", "machines"], "since": {topic: [epoch, seq]}}`, with
`"token"` if no browser session signs in. A message to the client has one frame per line. The socket is never the
record: a snapshot makes up for whatever it misses.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from redis.exceptions import RedisError

from seamlessflow.control_plane.accounts.selectors.access import Access
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.live.access import (
    Credential,
    access_by_session,
    access_by_token,
    topics_of,
)
from seamlessflow.control_plane.live.broker import deltas_since
from seamlessflow.control_plane.live.frames import (
    MACHINES_TOPIC,
    ClientMessage,
    Frame,
    Position,
    pool_of,
)
from seamlessflow.control_plane.live.guard import UNAUTHORIZED, Guarded
from seamlessflow.control_plane.live.hub import Mailbox, hub_get, hub_leave
from seamlessflow.core.protocol.live_rows import FrameKind

BAD_MESSAGE = 4400
SENDER_FAILED = 1011  # RFC 6455: an unexpected condition
SIGN_IN_TIMEOUT_S = 10.0
MAX_TOPICS = 32
_log = logging.getLogger(__name__)


class LiveConsumer(AsyncWebsocketConsumer):
    """One live socket. `_read` has the last delta sent on each topic; frames up to it are not repeated."""

    # Without a layer of Channels, which would need a connection per socket and end the socket when the broker goes.

    async def connect(self) -> None:
        self._mailbox = Mailbox()
        self._read: dict[str, Position] = {}
        self._was_behind = False
        self._order = asyncio.Lock()  # a subscription and its snapshot come before any later frame
        self._guarded: Guarded | None = None
        self._hub = hub_get()
        access = await database_sync_to_async(access_by_session)(self.scope.get("user"))
        if access is not None:
            session = self.scope.get("session")
            key = session.session_key if session is not None else None
            self._sign_in(access, Credential(access.user.id, session_key=key))
        self._hub.join(self._mailbox)
        await self.accept()
        self._sender = asyncio.create_task(self._send_loop())
        self._deadline = asyncio.create_task(self._sign_in_deadline())

    def _sign_in(self, access: Access, credential: Credential) -> None:
        self._guarded = Guarded(credential, access, self._refuse)
        self._hub.guard.add(self._guarded)

    def _sign_out(self) -> None:
        self._hub.guard.discard(self._guarded)
        self._guarded = None

    async def disconnect(self, code: int) -> None:
        self._sign_out()
        for task in (self._sender, self._deadline):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # its end was requested
                await task
        await hub_leave(self._mailbox)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            message = msgspec.json.decode(text_data or bytes_data or b"", type=ClientMessage)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            await self._refuse(f"the message cannot be read: {error}", BAD_MESSAGE)
            return
        if message.token is not None:
            self._deadline.cancel()  # the deadline is for the client's silence, not for how long the look-up takes
            self._sign_out()
            access = await database_sync_to_async(access_by_token)(message.token)
            if access is not None and access.token is not None:
                self._sign_in(access, Credential(access.user.id, token_id=access.token.id))
        if self._guarded is None:
            await self._refuse("sign in, or send an API token in the first message", UNAUTHORIZED)
            return
        # One look-up for all names: many sockets come at once, and each look-up waits for a thread.
        names = [*message.subscribe, *message.unsubscribe]
        known = await database_sync_to_async(_topics_by_name)(names, self._guarded.access)
        for name in message.subscribe:
            await self._subscribe(name, known[name], message.since)
        for name in message.unsubscribe:
            self._unsubscribe(known[name])

    async def _subscribe(
        self, name: str, topics: Sequence[str] | ApplicationError, since: dict[str, Position]
    ) -> None:
        if isinstance(topics, ApplicationError):
            await self._say(FrameKind.ERROR, name, {"detail": topics.detail})
            return
        if len(self._read.keys() | set(topics)) > MAX_TOPICS:
            await self._say(
                FrameKind.ERROR, name, {"detail": f"a socket may subscribe to at most {MAX_TOPICS} topics"}
            )
            return
        if name == MACHINES_TOPIC and self._guarded is not None:
            self._guarded.pools = frozenset(map(pool_of, topics)) - {""}
        for topic in topics:
            # Listen before reading: a change in between is in both, and a delta may be applied twice.
            async with self._order:
                await self._hub.subscribe(self._mailbox, topic)
                await self._catch_up(topic, since.get(topic))

    def _unsubscribe(self, topics: Sequence[str] | ApplicationError) -> None:
        # What may not be seen was never subscribed.
        for topic in () if isinstance(topics, ApplicationError) else topics:
            self._hub.unsubscribe(self._mailbox, topic)
            self._read.pop(topic, None)

    async def _catch_up(self, topic: str, since: Position | None) -> None:
        """Replay the deltas that the client lacks, or send a snapshot if that is not possible."""
        missed = await self._missed(topic, since) if since is not None else None
        if since is None or missed is None:
            snapshot = await self._hub.snapshots.get(topic)
            await self.send(text_data=snapshot.text)
            self._read[topic] = Position(snapshot.epoch, snapshot.seq)
            return
        self._read[topic] = since
        await self._forward(missed)

    async def _missed(self, topic: str, since: Position) -> list[Frame] | None:
        try:
            return await deltas_since(self._hub.reader, topic, since)
        except (RedisError, OSError):
            return None

    async def _send_loop(self) -> None:
        """Send frames until the socket closes. If sending fails, close the socket, so that the page opens another."""
        try:
            while True:
                frames = await self._mailbox.get()
                async with self._order:
                    await self._handle(frames)
        except OSError as error:  # for example, ASGI raises it once the client has left
            _log.info("a socket ends: %s", str(error) or type(error).__name__)
            await self._close_failed()
        except Exception:  # noqa: BLE001 - the page must learn of it, whatever it is
            _log.exception("a socket is closed because its frames could not be sent")
            await self._close_failed()

    async def _close_failed(self) -> None:
        with contextlib.suppress(OSError):  # the client has left
            await self.close(SENDER_FAILED)

    async def _handle(self, frames: Sequence[Frame]) -> None:
        if self._mailbox.is_behind != self._was_behind:
            self._was_behind = self._mailbox.is_behind
            await self._say(FrameKind.NOTICE, "", {"code": "behind" if self._was_behind else "current"})
        if self._mailbox.is_stale:
            self._mailbox.is_stale = False
            for topic in list(self._read):
                await self._catch_up(topic, None)
            return
        await self._forward(frames)

    async def _forward(self, frames: Sequence[Frame]) -> None:
        """Send the next deltas in one message, or a snapshot after a gap or a new epoch. Drop frames already sent."""
        texts: list[str] = []
        for frame in frames:
            read = self._read.get(frame.topic)
            if read is None or (frame.epoch == read.epoch and frame.seq <= read.seq):
                continue
            if frame.epoch != read.epoch or frame.seq != read.seq + 1:
                await self._send_lines(texts)
                await self._catch_up(frame.topic, None)
                texts = []
                continue
            self._read[frame.topic] = Position(frame.epoch, frame.seq)
            texts.append(frame.text)
        await self._send_lines(texts)

    async def _send_lines(self, texts: Sequence[str]) -> None:
        if texts:
            await self.send(text_data="\n".join(texts))

    async def _say(self, kind: FrameKind, topic: str, data: dict[str, Any]) -> None:
        at = time.time_ns() // 1_000_000
        await self.send(text_data=Frame(topic=topic, epoch="", seq=0, kind=kind, at=at, data=data).text)

    async def _refuse(self, detail: str, code: int) -> None:
        await self._say(FrameKind.ERROR, "", {"detail": detail})
        await self.close(code)

    async def _sign_in_deadline(self) -> None:
        await asyncio.sleep(SIGN_IN_TIMEOUT_S)
        if self._guarded is None:
            await self._refuse("no sign-in arrived in time", UNAUTHORIZED)


def _topics_by_name(names: Sequence[str], access: Access) -> dict[str, list[str] | ApplicationError]:
    """Return the topics of each name, or the error that says why it has none."""
    known: dict[str, list[str] | ApplicationError] = {}
    for name in names:
        try:
            known[name] = topics_of(name, access)
        except ApplicationError as error:
            known[name] = error
    return known
