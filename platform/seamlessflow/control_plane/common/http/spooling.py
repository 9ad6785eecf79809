"""Django's ASGI handler with its own spool: bodies that are too large for memory go to the folder of incoming files.

Invariant: a spool has no name, so nothing of it outlives the request, the client or the process. Threads write files
beside the event loop. A full disk becomes an answer to the client.
"""

import asyncio
import errno
import tempfile
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler

from seamlessflow.runtime.http.bodies import BodyRefused

WRITE_BYTES = 1024**2
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class SpoolingHandler(ASGIHandler):
    async def read_body(self, receive: Callable[[], Awaitable[Any]]) -> tempfile.SpooledTemporaryFile[bytes]:
        """Return the whole body. Raises RequestAborted if the client left, BodyRefused if the body is refused."""
        body = tempfile.SpooledTemporaryFile(  # noqa: SIM115  the request closes it
            max_size=settings.FILE_UPLOAD_MAX_MEMORY_SIZE, mode="w+b", dir=str(settings.INCOMING_DIR)
        )
        try:
            await _spool(body, receive)
        except OSError as error:
            body.close()
            if error.errno not in FULL_DISK:
                raise
            raise BodyRefused(
                HTTPStatus.INSUFFICIENT_STORAGE, "the disk of the artifact store is full; nothing was kept"
            ) from error
        except BaseException:
            body.close()
            raise
        return body


async def _spool(body: tempfile.SpooledTemporaryFile[bytes], receive: Callable[[], Awaitable[Any]]) -> None:
    pending = bytearray()
    has_more = True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestAborted
        pending += message.get("body", b"")
        has_more = message.get("more_body", False)
        if len(pending) >= WRITE_BYTES:
            await asyncio.to_thread(body.write, bytes(pending))
            pending.clear()
    body.write(pending)
    body.seek(0)
