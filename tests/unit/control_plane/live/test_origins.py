"""Only pages of this server sign a socket in with the visitor's cookie; programs send no origin, and a token."""

from typing import Any

import pytest
from pytest_django import Settings

from seamlessflow.control_plane.live.origins import OriginCheck

COOKIE = (b"cookie", b"sessionid=a")
HOST = (b"host", b"lab.example:8470")


@pytest.fixture(autouse=True)
def hosts(settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["lab.example", "127.0.0.1"]
    settings.WEB_URL = "https://public.example"
    settings.CSRF_TRUSTED_ORIGINS = ["https://other.example:8443"]


async def opened(*headers: tuple[bytes, bytes], can_say_why: bool = True) -> list[Any]:
    """Return what is sent to the client, and the headers that the application sees if the socket reaches it."""
    told: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        told.append(scope["headers"])

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    extensions: dict[str, Any] = {"websocket.http.response": {}} if can_say_why else {}
    await OriginCheck(application)(
        {"type": "websocket", "headers": list(headers), "extensions": extensions}, None, send
    )
    return told


async def test_without_an_origin_a_socket_opens_but_its_cookie_signs_nobody_in() -> None:
    assert await opened(HOST, COOKIE) == [[HOST]]


@pytest.mark.parametrize(
    "origin", [b"http://lab.example:8470", b"https://public.example", b"https://public.example:443",
               b"https://other.example:8443"],
)  # fmt: skip
async def test_a_page_of_this_server_opens_a_socket_with_its_cookie(origin: bytes) -> None:
    headers = (HOST, (b"origin", origin), COOKIE)
    assert await opened(*headers) == [list(headers)]


@pytest.mark.parametrize(
    "origin",
    [b"http://lab.example:9999", b"http://lab.example", b"http://127.0.0.1:8470", b"http://evil.example:8470",
     b"http://public.example", b"null", b"http://lab.example:port", b""],
)  # fmt: skip
async def test_a_page_of_another_host_or_port_is_refused_with_the_reason(origin: bytes) -> None:
    start, body = await opened(HOST, (b"origin", origin), COOKIE)
    assert (start["status"], b"is not this server's" in body["body"]) == (403, True)

    assert [one["type"] for one in await opened(HOST, (b"origin", origin), can_say_why=False)] == [
        "websocket.close"
    ]


async def test_a_name_that_is_bound_anew_is_no_name_of_this_server() -> None:
    rebound = (b"host", b"evil.example:8470"), (b"origin", b"http://evil.example:8470")
    assert (await opened(*rebound, COOKIE))[0]["status"] == 403
