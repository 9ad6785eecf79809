"""The web process keeps idle connections for longer than the clients that send heartbeats do."""

import asyncio

import aiohttp

from seamlessflow.cli.local.planes import web_command


def test_a_machine_never_finds_that_the_server_has_just_closed_its_connection() -> None:
    """A heartbeat on such a connection is lost, and machines of a large fleet send one every few seconds."""

    async def default_s() -> float:
        async with aiohttp.TCPConnector() as connector:
            assert connector._keepalive_timeout is not None
            return connector._keepalive_timeout

    client_s = asyncio.run(default_s())
    words = web_command("http://127.0.0.1:1")
    assert float(words[words.index("--timeout-keep-alive") + 1]) > client_s
