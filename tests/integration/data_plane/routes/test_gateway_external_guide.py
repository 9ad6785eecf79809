"""The Python of docs/external-agents.md does what the guide says, against a gateway."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from seamlessflow.core.protocol.openai_chat import ChatCompletion
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.external_agents_guide import guide_code
from tests.fixtures.gateway_world import GatewayWorld


async def test_sessions_of_the_guide_fill_a_group(
    gateway_world: GatewayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "42<|im_end|>", environment="external")
    world.make_token()
    monkeypatch.setenv("SEAMLESSFLOW_GATEWAY_URL", world.base_url)
    monkeypatch.setenv("SEAMLESSFLOW_TOKEN", world.api_token)
    code: dict[str, Any] = {}
    exec(compile(guide_code("python"), "docs/external-agents.md", "exec"), code)
    job = show_id(IdKind.JOB, world.job_id)

    for attempt, expected in enumerate(["42", "another number"]):
        await asyncio.to_thread(code["task_run"], job, "epoch 0, task 17", "6 times 7?", expected, attempt)

    assert world.sql("SELECT state, reward FROM trajectory_session ORDER BY slot") == [
        ("closed", 1.0),
        ("closed", 0.0),
    ]
    assert world.sql("SELECT state, task FROM trajectory_group") == [("ready", {"question": "6 times 7?"})]
    code["http"].close()


async def test_answer_is_the_published_chat_completion(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "42<|im_end|>", environment="external")
    world.make_token()
    opened = json.loads(
        (await world.post("/v1/sessions", {"job": show_id(IdKind.JOB, world.job_id)}, world.api_token))[1]
    )
    body = {"messages": [{"role": "user", "content": "?"}], "logprobs": True, "top_logprobs": 1}
    status, raw = await world.post("/v1/chat/completions", body, opened["api_key"])

    assert status == 200
    decoded = msgspec.json.decode(raw, type=ChatCompletion)
    assert json.loads(msgspec.json.encode(decoded)) == json.loads(raw), (
        "no field is missing in the published type"
    )
