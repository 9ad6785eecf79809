"""Which pages may open a socket. A browser sends its cookie wherever a page opens a socket, so a page of another origin
would listen as the visitor.

Takes the handshake of a websocket. Without `Origin`, as programs send it, the cookie is ignored and the first message
must have a token. With one, it must be this server's: the same host and port as the request's own, or a trusted one.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host

Scope = Mapping[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Any, Send], Awaitable[None]]
DENIAL = "websocket.http.response"  # the extension by which a refusal may say why
DEFAULT_PORTS = {"http": "80", "https": "443"}


class OriginCheck:
    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get(b"origin")
        if origin is None:
            cookieless = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
            await self._application({**scope, "headers": cookieless}, receive, send)
        elif is_own(origin, host=headers.get(b"host", "")):
            await self._application(scope, receive, send)
        else:
            await _refuse(scope, send, f"the origin {origin!r} is not this server's; programs send none")


def is_own(origin: str, *, host: str) -> bool:
    """Whether a page of this origin belongs to the server that was asked by the name `host`."""
    asked, _ = split_domain_port(host)
    parsed = _origin_parsed(origin)
    if parsed is None or not asked or not validate_host(asked, settings.ALLOWED_HOSTS):
        return False
    scheme = parsed[0]
    own = [f"{scheme}://{host}", settings.WEB_URL, *settings.CSRF_TRUSTED_ORIGINS]
    return parsed in [_origin_parsed(one) for one in own]


def _origin_parsed(origin: str) -> tuple[str, str, str] | None:
    """Return scheme, host and port; None for a text that is none, as `null`."""
    try:
        split = urlsplit(origin)
        port = split.port
    except ValueError:
        return None
    if split.scheme not in DEFAULT_PORTS or not split.hostname:
        return None
    return split.scheme, split.hostname, str(port or DEFAULT_PORTS[split.scheme])


async def _refuse(scope: Scope, send: Send, reason: str) -> None:
    if DENIAL not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 4403})
        return
    plain = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": f"{DENIAL}.start", "status": 403, "headers": plain})
    await send({"type": f"{DENIAL}.body", "body": reason.encode("utf-8", "replace")})
