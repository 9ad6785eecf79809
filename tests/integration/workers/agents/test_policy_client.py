"""The client of the built-in environments on a real socket: what it sends, and what it does when an answer fails."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from seamlessflow.core.environment.episodes import BrokenEpisode, PolicyEndpoint
from seamlessflow_workers.agents.environments import policy_client
from seamlessflow_workers.agents.environments.policy_client import (
    Message,
    PolicyClient,
    ToolCall,
    ToolFunction,
)

MESSAGES = [{"role": "user", "content": "“7+12”?"}]
BODY = '{"model":"policy","messages":[{"role":"user","content":"“7+12”?"}]}'.encode()


def whole(body: bytes, *, status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, headers, len(body), body)


def completion(content: str) -> bytes:
    return whole(msgspec.json.encode({"choices": [{"message": {"role": "assistant", "content": content}}]}))


class Gateway:
    """Gives its answers in turn; an empty one ends the connection, none at all keeps it open."""

    def __init__(self, answers: tuple[bytes | None, ...]) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[list[bytes], bytes]] = []
        self.num_connections = self.num_ended = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
                self.requests.append((head.split(b"\r\n")[:-2], await reader.readexactly(size)))
                answer = self.answers.pop(0)
                if answer == b"":
                    break
                writer.write(answer or b"")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.num_ended += 1

    def headers(self, number: int) -> dict[bytes, bytes]:
        return dict(line.split(b": ", 1) for line in self.requests[number][0][1:])

    def policy(self, key: str = "key-1") -> PolicyEndpoint:
        return PolicyEndpoint(base_url=f"http://127.0.0.1:{self.port}/prefix/v1", api_key=key)


@asynccontextmanager
async def gateway(*answers: bytes | None) -> AsyncIterator[tuple[Gateway, PolicyClient]]:
    served, client = Gateway(answers), PolicyClient()
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served, client
    finally:
        await client.close()
        server.close()
        async with asyncio.timeout(30):
            while served.num_ended < served.num_connections:  # noqa: ASYNC110 - they end by themselves
                await asyncio.sleep(0.01)


async def test_a_request_is_one_of_openai_and_connections_are_kept() -> None:
    async with gateway(completion("19"), completion("20")) as (served, client):
        assert (await client.ask(served.policy(), MESSAGES)).content == "19"
        assert (await client.ask(served.policy("key-2"), MESSAGES)).content == "20"
        lines, body = served.requests[0]
        assert lines[0] == b"POST /prefix/v1/chat/completions HTTP/1.1"
        first, second = served.headers(0), served.headers(1)
        keys = [first.pop(b"Idempotency-Key"), second.pop(b"Idempotency-Key")]
        assert first == {
            b"Host": b"127.0.0.1:%d" % served.port,
            b"Authorization": b"Bearer key-1",
            b"Content-Type": b"application/json",
            b"x-stainless-retry-count": b"0",
            b"Content-Length": b"%d" % len(BODY),
        }
        assert second == first | {b"Authorization": b"Bearer key-2"}
        assert body == BODY
        assert len(set(keys)) == 2
        assert served.num_connections == 1


async def test_what_the_policy_said_goes_back_as_it_came() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "calc", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None}
    answer = whole(msgspec.json.encode({"choices": [{"message": said}]}))
    async with gateway(answer, completion("1")) as (served, client):
        message = await client.ask(served.policy(), MESSAGES, tools=[{"type": "function"}])
        assert message == Message("assistant", None, [ToolCall("c1", ToolFunction("calc", "{}"))])
        await client.ask(served.policy(), [*MESSAGES, message])
        assert b'"tools":[{"type":"function"}]' in served.requests[0][1]
        again = msgspec.json.decode(served.requests[1][1])["messages"][1]
        assert again == {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "function": {"name": "calc", "arguments": "{}"}, "type": "function"}],
        }


@pytest.mark.parametrize(
    "failed",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{}",
        whole(b"", status=b"503 Later", headers=b"Retry-After: 0\r\nConnection: close\r\n"),
        b"SSH-2.0\r\n",
    ],
    ids=["closed", "broken off", "overloaded", "not HTTP"],
)
async def test_a_request_that_failed_is_repeated_under_the_same_key(
    monkeypatch: pytest.MonkeyPatch, failed: bytes
) -> None:
    monkeypatch.setattr(policy_client, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(policy_client, "SILENCE_S", 0.2)
    async with gateway(failed, completion("19")) as (served, client):
        assert (await client.ask(served.policy(), MESSAGES)).content == "19"
        first, second = served.headers(0), served.headers(1)
        assert second == first | {b"x-stainless-retry-count": b"1"}
        assert served.requests[0][1] == served.requests[1][1]


async def test_a_pause_that_the_gateway_asks_for_is_kept() -> None:
    later = whole(b"", status=b"429 Later", headers=b"RETRY-AFTER: 1\r\n")
    async with gateway(later, completion("19")) as (served, client):
        began_s = time.monotonic()
        assert (await client.ask(served.policy(), MESSAGES)).content == "19"
        assert time.monotonic() - began_s >= 0.95
        assert served.num_connections == 1


async def test_a_redirect_is_no_answer() -> None:
    moved = whole(b"elsewhere", status=b"307 Temporary Redirect", headers=b"Location: http://a/\r\n")
    async with gateway(moved) as (served, client):
        with pytest.raises(BrokenEpisode, match="status 307: elsewhere"):
            await client.ask(served.policy(), MESSAGES)


async def test_an_episode_that_is_cancelled_takes_its_request_from_the_gateway() -> None:
    async with gateway(None, completion("19")) as (served, client):
        asking = asyncio.create_task(client.ask(served.policy(), MESSAGES))
        async with asyncio.timeout(30):
            while not served.requests:  # noqa: ASYNC110 - the socket has no event for it
                await asyncio.sleep(0.01)
            asking.cancel()
            while not served.num_ended:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await client.ask(served.policy(), MESSAGES)).content == "19"
        assert served.num_connections == 2


@pytest.mark.parametrize("key", ["key\r\nX-More: 1", "käy", "key\x00"])
async def test_a_key_that_would_be_more_than_a_header_is_not_sent(key: str) -> None:
    async with gateway() as (served, client):
        with pytest.raises(BrokenEpisode, match="printable"):
            await client.ask(served.policy(key), MESSAGES)
        assert served.num_connections == 0


async def test_an_address_that_is_none_breaks_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_client, "FIRST_PAUSE_S", 0.0)
    client = PolicyClient()
    with pytest.raises(BrokenEpisode, match="did not answer: ConnectionError: the endpoint must"):
        await client.ask(PolicyEndpoint(base_url="ftp://a", api_key="key"), MESSAGES)
    await client.close()
