"""Templates that never end and texts that are too long fail alone: other turns and health checks are answered."""

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld
from tests.fixtures.tiny_text import TEMPLATE, write_tiny_text

USER: dict[str, Any] = {"role": "user", "content": "12+34?"}
SLOW = "{%- for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor -%}"
LOUD = "{%- for i in range(99999) %}{{ 'x' * 10000 }}{% endfor -%}"
GREEDY = "{%- set big = ('x' * 3000000000) -%}"
ANSWER_S = 10.0  # the turn of another, well-behaved job on a busy machine
LONG_BYTES = 20 << 20


@pytest.fixture
async def world(gateway_world: GatewayWorld) -> GatewayWorld:
    gateway_world.changes |= {"render_timeout_s": 2.0, "render_memory_mb": 512}
    return gateway_world


async def session_keys(world: GatewayWorld) -> list[str]:
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    return [session["api_key"] for session in group["sessions"]]


async def asked(world: GatewayWorld, key: str, content: str) -> tuple[int, dict[str, Any]]:
    """Return status and body of a turn; (0, {}) if no answer came in time."""
    try:
        status, raw = await world.post("/v1/chat/completions", _body(content), key)
    except (TimeoutError, aiohttp.ClientError):
        return 0, {}
    return status, world.decode(raw)


def _body(content: str) -> Any:
    return {"messages": [{"role": "user", "content": content}]}


async def is_healthy(world: GatewayWorld) -> bool:
    assert world.http is not None
    try:
        async with (
            asyncio.timeout(ANSWER_S),
            world.http.get(world.base_url + "/healthz") as response,
        ):
            return response.status == 200
    except TimeoutError:
        return False


async def start_hostile(world: GatewayWorld, **codes: str) -> tuple[str, str]:
    """Make a job whose template does what the first message says; return the keys of two sessions."""
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    hostile = "".join(
        "{%- if messages[0].content == '" + name + "' %}" + code + "{% endif -%}"
        for name, code in codes.items()
    )
    write_tiny_text(world.folder / "model", template=hostile + TEMPLATE)
    try:
        hostile, honest = await session_keys(world)
    except TimeoutError:
        raise AssertionError("the gateway stands still while it reads a template") from None
    return hostile, honest


async def test_template_that_never_ends_fails_alone(world: GatewayWorld) -> None:
    hostile, honest = await start_hostile(world, slow=SLOW)
    evil = asyncio.create_task(asked(world, hostile, "slow"))
    try:
        await asyncio.sleep(0.5)
        assert await is_healthy(world), "the gateway stands still while a template loops"
        status, _ = await asked(world, honest, "12+34?")
        assert status == 200
        status, body = await evil
        assert (status, body["error"]["code"]) == (422, "template_too_slow")
    finally:
        evil.cancel()


async def test_templates_that_take_memory_or_write_without_end_fail_by_name(world: GatewayWorld) -> None:
    hostile, honest = await start_hostile(world, loud=LOUD, greedy=GREEDY)
    status, body = await asked(world, hostile, "loud")
    assert (status, body["error"]["code"]) == (422, "output_too_large"), body
    status, body = await asked(world, hostile, "greedy")
    assert (status, body["error"]["code"]) == (422, "out_of_memory"), body
    assert (await asked(world, honest, "12+34?"))[0] == 200
    assert world.process is not None
    assert psutil.Process(world.process.pid).memory_info().rss < 400 << 20


async def test_long_text_is_refused_while_others_are_served(world: GatewayWorld) -> None:
    world.changes["render_memory_mb"] = 4096  # so that the time limit is reached first
    await world.start_engines(lambda prompt: "yes<|im_end|>", model={"max_model_len": 200_000})
    long, honest = await session_keys(world)
    assert world.http is not None
    body = b'{"messages": [{"role": "user", "content": "%s"}]}' % (b"word " * (LONG_BYTES // 5))
    (world.folder / "body").write_bytes(body)
    sending = asyncio.create_task(_send_file(world, long, world.folder / "body"))
    try:
        slowest_s = 0.0
        while not sending.done():
            began_s = time.monotonic()
            assert await is_healthy(world), "the gateway stands still while a long text is tokenised"
            slowest_s = max(slowest_s, time.monotonic() - began_s)
            await asyncio.sleep(0.02)
        assert (await asked(world, honest, "12+34?"))[0] == 200
        status, raw = sending.result()
        assert (status, world.decode(raw)["error"]["code"]) == (422, "text_too_long"), raw
        assert slowest_s < ANSWER_S
    finally:
        sending.cancel()


async def _send_file(world: GatewayWorld, key: str, path: Path) -> tuple[int, bytes]:
    assert world.http is not None
    with path.open("rb") as file:
        async with world.http.post(
            world.base_url + "/v1/chat/completions",
            data=file,
            headers={"Authorization": f"Bearer {key}"},
            timeout=aiohttp.ClientTimeout(total=120),
        ) as response:
            return response.status, await response.read()


async def test_sessions_that_begin_alike_need_no_helper_again(world: GatewayWorld) -> None:
    prompts: list[str] = []

    def script(prompt: str) -> str:
        prompts.append(prompt)
        return "yes<|im_end|>"

    await world.start_engines(script)
    first, second = await session_keys(world)
    assert (await asked(world, first, "12+34?"))[0] == 200
    assert world.process is not None
    for helper in psutil.Process(world.process.pid).children():
        helper.suspend()
    assert (await asked(world, second, "12+34?"))[0] == 200
    assert prompts[0] == prompts[1]


async def test_killed_helper_is_replaced_and_none_outlives_the_gateway(world: GatewayWorld) -> None:
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    first, second = await session_keys(world)
    assert (await asked(world, first, "12+34?"))[0] == 200
    assert world.process is not None
    helpers = psutil.Process(world.process.pid).children()
    assert len(helpers) == 1
    helpers[0].kill()
    assert (await asked(world, second, "56+78?"))[0] == 200
    helpers = psutil.Process(world.process.pid).children()
    world.kill_gateway()
    _, alive = psutil.wait_procs(helpers, timeout=20)
    assert alive == []
