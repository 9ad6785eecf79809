"""The gateway with the embedded engine's real HTTP API: formats, versions, gaps; and how the process starts."""

import asyncio
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import openai
import pytest

from seamlessflow.core.trajectory.version_spans import spans_expand
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.store.values import unpacked
from tests.fakes.fake_engine import FakeEngine, next_logprob, next_token, start_fake_engine
from tests.fixtures.gateway_world import SECRET, GatewayWorld
from tests.fixtures.repository import ROOT

USER: Any = {"role": "user", "content": "12+34?"}
NUM_TOKENS = 60


async def serve(world: GatewayWorld, engine: FakeEngine) -> str:
    """Start a gateway with one session at this engine; return the session's key."""
    world.make_job(rollout={"max_tokens_per_turn": NUM_TOKENS})
    world.make_phase(Role.ROLLOUT, endpoint=engine.base_url, version=0)
    await world.start_gateway()
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    key: str = group["sessions"][0]["api_key"]
    return key


def check_recorded(world: GatewayWorld) -> list[int]:
    """Check that the engine computes every recorded token and logprob under its version; return the versions."""
    ((prompt,),) = world.sql("SELECT token_ids FROM trajectory_prompt")
    ((ids, logprobs, spans),) = world.sql(
        "SELECT token_ids, logprobs, version_spans FROM trajectory_node WHERE kind = 2"
    )
    path = np.frombuffer(unpacked(prompt), dtype="<i4").tolist()
    versions: list[int] = spans_expand(tuple(spans), NUM_TOKENS).tolist()
    tokens = np.frombuffer(unpacked(ids), dtype="<i4").tolist()
    for token, logprob, version in zip(
        tokens, np.frombuffer(unpacked(logprobs), dtype="<f4"), versions, strict=True
    ):
        assert token == next_token(path, version=str(version))
        assert float(logprob) == next_logprob(path, version=str(version))
        path.append(token)
    return versions


async def test_plain_answers_are_recorded_as_the_engine_computed_them(gateway_world: GatewayWorld) -> None:
    engine = await start_fake_engine()
    key = await serve(gateway_world, engine)
    answer = await gateway_world.chat(key, [USER])
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == NUM_TOKENS
    assert set(check_recorded(gateway_world)) == {0}
    await engine.stop()


async def test_a_stream_stays_open_across_an_update_and_each_token_has_its_version(
    gateway_world: GatewayWorld,
) -> None:
    engine = await start_fake_engine(step_delay_s=0.01)
    key = await serve(gateway_world, engine)
    async with openai.AsyncOpenAI(
        base_url=gateway_world.base_url + "/v1", api_key=key, max_retries=0
    ) as client:
        stream = await client.chat.completions.create(
            model="tiny", messages=[USER], stream=True, stream_options={"include_usage": True}
        )
        last_s, gaps, usage = time.monotonic(), [], None
        async for chunk in stream:
            gaps.append(time.monotonic() - last_s)
            last_s, usage = time.monotonic(), chunk.usage
            if len(gaps) == 10:
                await engine.set_version("1")
    assert usage is not None
    assert usage.completion_tokens == NUM_TOKENS
    assert set(check_recorded(gateway_world)) == {0, 1}
    assert max(gaps) < 1.0
    await engine.stop()


@pytest.mark.parametrize(
    "environ,words",
    [
        ({}, "DATABASE_URL is not set; accepted: postgresql://"),
        ({"DATABASE_URL": "postgresql:///x"}, "SEAMLESSFLOW_SECRET_KEY is not set; accepted: at least"),
    ],
)
def test_missing_settings_are_named_at_start(environ: dict[str, str], words: str) -> None:
    kept = {name: os.environ[name] for name in ("PATH",)}
    command = [sys.executable, "-m", "seamlessflow.data_plane"]
    ended = subprocess.run(
        command,
        env=kept | {"PYTHONPATH": str(ROOT / "platform")} | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_a_database_that_is_down_at_start_is_waited_for(gateway_world: GatewayWorld) -> None:
    environ = os.environ | {
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
        "SEAMLESSFLOW_SECRET_KEY": SECRET,
        "PYTHONPATH": str(ROOT / "platform"),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "seamlessflow.data_plane", env=environ, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(20):
        assert b"waiting for the database" in await process.stderr.readline()
    process.kill()
    await process.wait()
