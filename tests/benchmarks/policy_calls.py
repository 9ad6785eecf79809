"""Asks for chat completions and prints what a call costs: `python -m tests.benchmarks.policy_calls
CLIENT URL NUM_CALLS`.

CLIENT is `ours`, the client of the built-in environments, or `aiohttp`, a session of that library
that sends the same bytes and decodes the same answers. NUM_TOGETHER calls are under way at a time.
It prints the microseconds of processor time of this process for one call.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import aiohttp
import msgspec
import uvloop

from seamlessflow.core.environment.episodes import PolicyEndpoint
from seamlessflow_workers.agents.environments.policy_client import PolicyClient

NUM_TOGETHER = 16
NUM_BEFORE = 20  # of each of them: connections are made
MESSAGES = [{"role": "user", "content": "Work this out: " + "12 + 34. " * 20}]

Ask = Callable[[], Awaitable[object]]


async def _calls(ask: Ask, num_calls: int) -> None:
    for _ in range(num_calls):
        await ask()


async def _cost_us(ask: Ask, num_calls: int) -> float:
    await asyncio.gather(*(_calls(ask, NUM_BEFORE) for _ in range(NUM_TOGETHER)))
    began_s = time.process_time()
    await asyncio.gather(*(_calls(ask, num_calls // NUM_TOGETHER) for _ in range(NUM_TOGETHER)))
    return (time.process_time() - began_s) / (num_calls // NUM_TOGETHER * NUM_TOGETHER) * 1e6


async def _ours(url: str, num_calls: int) -> float:
    client = PolicyClient()
    policy = PolicyEndpoint(base_url=f"{url}/v1", api_key="key")
    try:
        return await _cost_us(lambda: client.ask(policy, MESSAGES), num_calls)
    finally:
        await client.close()


async def _by_aiohttp(url: str, num_calls: int) -> float:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def ask() -> object:
            body = msgspec.json.encode({"model": "policy", "messages": MESSAGES})
            headers = {"Authorization": "Bearer key", "Content-Type": "application/json"}
            async with http.post(f"{url}/v1/chat/completions", data=body, headers=headers) as response:
                return msgspec.json.decode(await response.read())

        return await _cost_us(ask, num_calls)


if __name__ == "__main__":
    measure = {"ours": _ours, "aiohttp": _by_aiohttp}[sys.argv[1]]
    print(uvloop.run(measure(sys.argv[2], int(sys.argv[3]))))
