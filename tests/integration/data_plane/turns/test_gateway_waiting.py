"""What a client sees while no engine works for its job: words in a stream, and an error to retry for a whole answer."""

import asyncio
import json
from typing import Any

import pytest

from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.gateway_world import GatewayWorld

USER: dict[str, Any] = {"role": "user", "content": "12+34?"}
REASON = "no machine is free for role rollout: alpha is held by another job"
PATIENCE_S = 2
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [USER]},
    "/v1/completions": {"prompt": "12+34?"},
    "/v1/responses": {"input": "12+34?"},
    "/v1/messages": {"messages": [USER], "max_tokens": 9},
}


async def outside_session(world: GatewayWorld, *, patience_s: int = PATIENCE_S) -> str:
    """Return the key of a session of an agent outside the platform, whose job has no engine."""
    world.environ["SEAMLESSFLOW_ENGINE_WAIT_S"] = str(patience_s)
    await world.start_engines(lambda prompt: "46<|im_end|>", num_engines=0, environment="external")
    world.make_token()
    world.sql("UPDATE jobs_job SET waiting_reason = %s", [REASON])
    body = {"job": show_id(IdKind.JOB, world.job_id), "group": "g"}
    status, raw = await world.post("/v1/sessions", body, world.api_token)
    assert status == 201, raw
    key: str = json.loads(raw)["api_key"]
    await asyncio.sleep(1.2)  # the gateway looks at its jobs every second
    return key


async def test_a_stream_says_at_once_why_it_waits_and_then_goes_on(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    key = await outside_session(world)
    assert world.http is not None
    for path, body in BODIES.items():
        async with asyncio.timeout(10):
            async with world.http.post(
                world.base_url + path,
                json={**body, "stream": True},
                headers={"Authorization": f"Bearer {key}"},
            ) as response:
                assert response.status == 200
                async with asyncio.timeout(1.0):
                    while not (line := await response.content.readline()).startswith(b": "):
                        pass
                assert line.decode().strip() == f": waiting: {REASON}", path
    await world.start_engine(lambda prompt: "46<|im_end|>")
    assert "46" in json.dumps(await world.chat(key, [USER]))


@pytest.mark.parametrize(
    "path,status,kind",
    [
        ("/v1/chat/completions", 503, "server_error"),
        ("/v1/messages", 529, "overloaded_error"),
    ],
)
async def test_a_whole_answer_that_waits_too_long_is_refused_with_the_reason(
    gateway_world: GatewayWorld, path: str, status: int, kind: str
) -> None:
    world = gateway_world
    key = await outside_session(world)
    assert world.http is not None
    async with asyncio.timeout(PATIENCE_S + 30):  # the first prompt starts a helper
        async with world.http.post(
            world.base_url + path, json=BODIES[path], headers={"Authorization": f"Bearer {key}"}
        ) as response:
            error = (await response.json())["error"]
    assert (response.status, error["type"], error["code"]) == (status, kind, "no_engine")
    assert REASON in error["message"]
    assert response.headers["Retry-After"] == "5"
    assert response.headers["x-should-retry"] == "true"
    assert float(response.headers["x-seamlessflow-waited-s"]) >= PATIENCE_S
