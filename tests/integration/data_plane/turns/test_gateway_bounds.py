"""The bounds of a session at a real gateway process: turns, answers at the same time, and tokens."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from seamlessflow.data_plane.serving.bounds import PACE_S
from tests.fixtures.gateway_world import GatewayWorld
from tests.integration.data_plane.groups.test_gateway_outside_sessions import close, opened, report

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "?"}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [USER]},
    "/v1/responses": {"input": "?"},
    "/v1/completions": {"prompt": "?"},
    "/v1/messages": {"messages": [USER], "max_tokens": 20},
    "/v1beta/models/any:generateContent": {"contents": [{"role": "user", "parts": [{"text": "?"}]}]},
    "/v1beta/models/any:streamGenerateContent?alt=sse": {
        "contents": [{"role": "user", "parts": [{"text": "?"}]}]
    },
}
Answered = tuple[int, Mapping[str, str], Any]


def script(prompt: str) -> str:
    return "yes<|im_end|>"


async def start(world: GatewayWorld, **environment: Any) -> Any:
    (engine,) = await world.start_engines(
        script, environment="external", environment_fields=environment, rollout={"group_size": 8}
    )
    world.make_token()
    return engine


async def ask(
    world: GatewayWorld,
    session: dict[str, Any],
    path: str = CHAT,
    *,
    idempotency_key: str = "",
    **fields: Any,
) -> Answered:
    assert world.http is not None
    headers = {"Authorization": f"Bearer {session['api_key']}"}
    if idempotency_key:
        headers["Idempotency-Key"] = idempotency_key
    async with world.http.post(
        world.base_url + path, json=BODIES[path] | fields, headers=headers
    ) as response:
        raw = await response.read()
        return (
            response.status,
            response.headers,
            json.loads(raw) if raw.startswith(b"{") else raw,
        )


async def test_the_turn_beyond_the_last_is_refused_in_each_api_and_the_session_is_graded(
    gateway_world: GatewayWorld,
) -> None:
    await start(gateway_world, max_turns=1)
    kinds = {}
    for path in BODIES:
        session = await opened(gateway_world, "g")
        assert (await ask(gateway_world, session, path))[0] == 200
        status, headers, body = await ask(gateway_world, session, path)
        assert (status, headers["x-should-retry"]) == (429, "false"), body
        assert "environment.max_turns: 1" in body["error"]["message"]
        assert "End the episode" in body["error"]["message"]
        kinds[path] = body["error"].get("type") or body["error"]["status"]
        assert (await report(gateway_world, session, reward=0.5))[0] == 204
        await close(gateway_world, session)

    assert set(kinds.values()) == {"rate_limit_error", "RESOURCE_EXHAUSTED"}
    rows = gateway_world.sql("SELECT DISTINCT state, reward, num_turns FROM trajectory_session")
    assert rows == [("closed", 0.5, 1)]


async def test_a_repeated_turn_counts_once_and_a_new_gateway_counts_on(gateway_world: GatewayWorld) -> None:
    await start(gateway_world, max_turns=2)
    session = await opened(gateway_world, "g")
    first = await ask(gateway_world, session, idempotency_key="a")
    assert (await ask(gateway_world, session, idempotency_key="a"))[2]["choices"] == first[2]["choices"]
    gateway_world.kill_gateway()
    await gateway_world.start_gateway()

    assert (await ask(gateway_world, session, idempotency_key="a"))[2]["choices"] == first[2]["choices"]
    assert (await ask(gateway_world, session, idempotency_key="b"))[0] == 200
    assert (await ask(gateway_world, session, idempotency_key="c"))[0] == 429
    assert (await ask(gateway_world, session, idempotency_key="b"))[0] == 200


async def test_sampled_tokens_are_bounded(gateway_world: GatewayWorld) -> None:
    gateway_world.environ = {"SEAMLESSFLOW_SESSION_TOKENS": "3"}
    await start(gateway_world)
    session = await opened(gateway_world, "g")
    status, headers, body = await ask(gateway_world, session)
    assert (status, body["usage"]["completion_tokens"]) == (200, 3)
    assert body["choices"][0]["finish_reason"] == "length"

    status, headers, body = await ask(gateway_world, session)
    assert (status, headers["x-should-retry"]) == (429, "false")
    assert body["error"]["code"] == "session_tokens_reached"
    assert "3 (SEAMLESSFLOW_SESSION_TOKENS)" in body["error"]["message"]


async def test_refusals_of_unknown_keys_go_out_one_after_the_other(gateway_world: GatewayWorld) -> None:
    await start(gateway_world)
    began_s = time.monotonic()
    answers = await asyncio.gather(*(ask(gateway_world, {"api_key": "unknown"}) for _ in range(60)))
    assert {status for status, _, _ in answers} == {401}
    assert time.monotonic() - began_s >= 59 * PACE_S
