"""Blocked planes end themselves and say so; a half-dead listening connection is replaced."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from seamlessflow.core.types.tags import Role
from tests.fixtures.database_proxy import database_proxy
from tests.fixtures.gateway_world import GatewayWorld
from tests.fixtures.web_world import WebWorld

LISTEN = b"LISTEN sf_engines"
PATIENCE_S = 60.0


@pytest.fixture
def short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sf-") as name:
        yield Path(name)


async def test_a_gateway_with_a_blocked_loop_ends_itself(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    world.environ["SEAMLESSFLOW_WATCHDOG_S"] = "2"
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    tasks = world.folder / "tasks.jsonl"
    tasks.unlink()
    os.mkfifo(tasks)  # whoever opens it waits for a writer
    agent = world.make_phase(Role.AGENT)
    with pytest.raises((aiohttp.ClientError, TimeoutError)):
        await world.lease(agent)
    assert world.process is not None
    try:
        status = await asyncio.to_thread(world.process.wait, PATIENCE_S / 2)
    except Exception:
        status = None
    assert status == 70, f"the gateway stands still for ever (status {status})"
    log = (world.folder / "gateway.log").read_text()
    assert "the gateway's event loop has stood still" in log
    assert "tasks_load" in log
    tasks.unlink()


def test_a_web_process_with_a_blocked_loop_ends_itself(web_world: WebWorld) -> None:
    web_world.kill()
    web_world.application = "tests.fakes.web_that_stands_still:application"
    web_world.environ["SEAMLESSFLOW_WATCHDOG_S"] = "2"
    web_world.start()
    assert web_world.status("GET", "/stand-still") is None
    assert web_world.process is not None
    try:
        status = web_world.process.wait(PATIENCE_S / 2)
    except subprocess.TimeoutExpired:
        status = None
    assert status == 70, f"the web process stands still for ever (status {status})"
    assert "the web process's event loop has stood still" in (web_world.folder / "web.log").read_text()


async def test_a_gateway_whose_long_running_task_dies_ends_itself(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    world.sql("ALTER TABLE scheduling_phase RENAME TO elsewhere")  # an error that nobody foresaw
    assert world.process is not None
    try:
        status = await asyncio.to_thread(world.process.wait, PATIENCE_S / 2)
    except subprocess.TimeoutExpired:
        status = None
    assert status == 70, f"the gateway goes on without its engine table (status {status})"
    assert "the task maintenance ended" in (world.folder / "gateway.log").read_text()


async def test_livez_answers_while_the_database_is_unavailable(
    gateway_world: GatewayWorld, short_folder: Path
) -> None:
    world = gateway_world
    async with database_proxy(world.database_url, short_folder) as proxy:
        world.environ["DATABASE_URL"] = proxy.url
        await world.start_engines(lambda prompt: "yes<|im_end|>")
        for passage in proxy.passages:
            passage.is_cut = True
        assert world.http is not None
        async with world.http.get(world.base_url + "/livez") as response:
            answer = await response.json()
            assert (response.status, answer["status"], answer["dead_tasks"]) == (200, "ok", [])
        world.kill_gateway()


@pytest.mark.parametrize("when", ["while it listens", "before it is answered"])
async def test_a_half_dead_listening_connection_is_replaced(
    gateway_world: GatewayWorld, short_folder: Path, when: str
) -> None:
    world = gateway_world
    async with database_proxy(world.database_url, short_folder) as proxy:
        world.environ["DATABASE_URL"] = proxy.url
        if when == "before it is answered":
            proxy.cut_at = LISTEN
        await world.start_engines(lambda prompt: "yes<|im_end|>")

        async def listens() -> bool:
            return any(not passage.is_cut for passage in proxy.that_said(LISTEN))

        if when == "while it listens":
            await world.until(listens, what="the gateway to listen")
            for passage in proxy.that_said(LISTEN):
                passage.is_cut = True
        await world.until(listens, what="the gateway to listen anew", timeout_s=PATIENCE_S)
        world.kill_gateway()
