"""An authenticated JSON POST that interprets the platform's answers and retries as long as the caller allows.

Gateway and control plane may restart at any time: refused connections, timeouts and 5xx are retried with back-off. 409
means that this phase was fenced off; any other 4xx is final. The sentence of an RFC 9457 problem is passed on.
"""

import asyncio
import logging
from collections.abc import Callable

import aiohttp
import msgspec

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
_MAX_PROBLEM_CHARACTERS = 500


class FencedOff(RuntimeError):
    """Another phase took over (409); requests of this phase no longer count."""


class RequestRefused(RuntimeError):
    """The server will not accept this request, however often it is sent."""


class ServerUnavailable(RuntimeError):
    """There was no valid answer (connection, timeout, 5xx); a retry is worthwhile."""


class _Problem(msgspec.Struct, frozen=True):
    title: str = ""
    detail: str = ""


async def post_json(
    session: aiohttp.ClientSession, url: str, message: msgspec.Struct, *, timeout_s: float
) -> bytes | None:
    """POST once; return the body of a 200, None for a 204. Raises FencedOff, RequestRefused, ServerUnavailable."""
    timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
    body = msgspec.json.encode(message)
    try:
        async with session.post(
            url,
            data=body,
            headers={"Content-Type": "application/json"},
            timeout=timeout,
            allow_redirects=False,
        ) as response:
            raw = await response.read()
            status = response.status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ServerUnavailable(f"{url}: {str(error) or type(error).__name__}") from error
    if status == 204:
        return None
    if status == 200:
        return raw
    sentence = _problem_sentence(raw, status)
    if status == 409:
        raise FencedOff(sentence)
    if 400 <= status < 500 and status not in (408, 425, 429):
        raise RequestRefused(f"{url} refused the request with status {status}: {sentence}")
    raise ServerUnavailable(f"{url} answered {status}: {sentence}")


async def post_until_answered(
    session: aiohttp.ClientSession,
    url: str,
    message: msgspec.Struct,
    *,
    timeout_s: float,
    again: msgspec.Struct | None = None,
    may_retry: Callable[[], bool] = lambda: True,
) -> bytes | None:
    """Repeat `post_json` while the server is unavailable and `may_retry` allows it. Cancel to give up early.

    `again` is sent instead of `message` from the second time on.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await post_json(session, url, message, timeout_s=timeout_s)
        except ServerUnavailable as error:
            if not may_retry():
                raise
            logger.warning("retrying in %.1f s: %s", pause_s, error)
            message = again or message
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _problem_sentence(raw: bytes, status: int) -> str:
    try:
        problem = msgspec.json.decode(raw, type=_Problem)
    except msgspec.DecodeError:
        return raw.decode("utf-8", "replace")[:_MAX_PROBLEM_CHARACTERS] or f"status {status} without a reason"
    return problem.detail or problem.title or f"status {status} without a reason"
