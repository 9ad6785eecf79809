"""Reading request bodies: bounded one by one and all together."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from seamlessflow.data_plane.dialects.chat.request import chat_request_parse
from seamlessflow.data_plane.dialects.fields import MAX_MESSAGES
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.routes.http import BodyBudget
from seamlessflow.runtime.http.bodies import ClientGone

SCOPE: dict[str, Any] = {"headers": []}


def receiving(*messages: dict[str, Any]) -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
    left = list(messages)

    async def receive() -> MutableMapping[str, Any]:
        return left.pop(0)

    return receive


def piece(body: bytes, *, more_body: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more_body}


def room() -> BodyBudget:
    return BodyBudget(max_body_bytes=10, max_total_bytes=15)


async def test_pieces_are_put_together() -> None:
    receive = receiving(piece(b"abc", more_body=True), piece(b"", more_body=True), piece(b"de"))
    with room().body() as held:
        assert await held.read(SCOPE, receive) == b"abcde"


@pytest.mark.parametrize("scope", [SCOPE, {"headers": [(b"content-length", b"11")]}])
async def test_body_that_is_too_large_is_refused_before_it_is_read(scope: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught, room().body() as held:
        await held.read(scope, receiving(piece(b"x" * 11)))
    assert caught.value.status == 413


async def test_beyond_the_common_bound_callers_are_told_to_come_again_and_room_is_given_back() -> None:
    bodies = room()
    with bodies.body() as first:
        await first.read(SCOPE, receiving(piece(b"x" * 10)))
        with pytest.raises(ApiError) as caught, bodies.body() as second:
            await second.read(SCOPE, receiving(piece(b"x" * 5, more_body=True), piece(b"x")))
        assert (caught.value.status, caught.value.headers) == (503, {"retry-after": "1"})
        first.release()
        with bodies.body() as third:
            assert await third.read(SCOPE, receiving(piece(b"x" * 10))) == b"x" * 10


async def test_client_that_leaves_gives_its_room_back() -> None:
    bodies = room()
    with pytest.raises(ClientGone), bodies.body() as held:
        await held.read(SCOPE, receiving(piece(b"x" * 9, more_body=True), {"type": "http.disconnect"}))
    bodies.take(15)


def test_more_messages_than_a_conversation_can_have_are_refused_at_once() -> None:
    body = b'{"messages": [' + b",".join([b'{"role": "user", "content": ""}'] * (MAX_MESSAGES + 1)) + b"]}"
    with pytest.raises(ApiError, match=f"at most {MAX_MESSAGES} messages") as caught:
        chat_request_parse(body, temperature=1.0)
    assert (caught.value.status, caught.value.param) == (400, "messages")
