"""What clients see when an engine breaks: the fake's faults, and a step that raises."""

import asyncio
import json

import aiohttp
import numpy as np
import pytest

from seamlessflow_workers.rollout.engine.engine import EmbeddedEngine
from seamlessflow_workers.rollout.engine.runner import Sampled, StepBatch
from seamlessflow_workers.rollout.serving.served_engine import EngineSettings, PauseMode
from seamlessflow_workers.rollout.serving.server import EngineServer
from tests.contract.engine.conftest import DEADLINE_S, eventually
from tests.fakes.fake_engine import FakeEngine, FakeRunner, Faults, next_token, start_fake_engine

ENDLESS = {"token_ids": [20, 21], "sampling_params": {"ignore_eos": True, "logprobs": 0}}


async def test_engine_that_dies_breaks_the_stream_off_and_stops_listening() -> None:
    engine = await start_fake_engine(die_after_tokens=40, step_delay_s=0.001)
    async with aiohttp.ClientSession(engine.base_url) as http:
        tokens: list[int] = []
        with pytest.raises(aiohttp.ClientError):
            await _read_stream(http, tokens)
        assert 0 < len(tokens) <= 40
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get("/health")
    await engine.stop()


async def _read_stream(http: aiohttp.ClientSession, tokens: list[int]) -> None:
    async with http.post("/inference/v1/generate", json=ENDLESS | {"stream": True}) as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                tokens += json.loads(line[6:])["choices"][0]["token_ids"]


async def test_hanging_engine_answers_verbs_only_when_it_goes_on() -> None:
    engine = await start_fake_engine()
    async with aiohttp.ClientSession(engine.base_url) as http:
        engine.faults.is_hanging = True
        task = asyncio.create_task(http.post("/inference/v1/generate", json=ENDLESS))
        await eventually(lambda: _is_running(engine))
        async with http.get("/health") as response:
            assert response.status == 200
        pause = asyncio.create_task(http.post("/pause"))
        done, _ = await asyncio.wait([task, pause], timeout=0.1)
        assert not done

        engine.faults.is_hanging = False

        async with asyncio.timeout(DEADLINE_S):
            assert (await pause).status == (await task).status == 200
    await engine.stop()


async def test_a_caller_that_gives_up_on_a_pause_does_not_break_the_engine() -> None:
    engine = await start_fake_engine(step_delay_s=0.001)
    async with aiohttp.ClientSession(engine.base_url) as http:
        answer = asyncio.create_task(http.post("/inference/v1/generate", json=ENDLESS))
        await eventually(lambda: _is_running(engine))
        pause = asyncio.create_task(engine.service.pause(PauseMode.WAIT, clear_cache=False))
        await asyncio.sleep(0)  # it has given its order
        pause.cancel()
        await asyncio.wait([pause])
        await engine.service.resume()

        await http.post("/abort_requests", json={})
        assert (await answer).status == 200
        await engine.service.pause(PauseMode.WAIT, clear_cache=False)
    assert not engine.service.failed.is_set()
    await engine.stop()


async def test_version_set_on_the_fake_changes_what_it_samples() -> None:
    engine = await start_fake_engine(version="a", step_delay_s=0.001)
    async with aiohttp.ClientSession(engine.base_url) as http:
        task = asyncio.create_task(http.post("/inference/v1/generate", json=ENDLESS))
        await eventually(lambda: _has_sampled(engine))
        await engine.set_version("b")
        await http.post("/abort_requests", json={})
        choice = (await (await task).json())["choices"][0]

    prefix = [20, 21]
    for span in choice["weight_versions"]:
        for token in choice["token_ids"][span["start"] : span["end"]]:
            assert token == next_token(prefix, version=span["version"])
            prefix.append(token)
    assert engine.version == "b"
    await engine.stop()


async def _is_running(engine: FakeEngine) -> bool:
    return engine.service.scheduler.num_running == 1


async def _has_sampled(engine: FakeEngine) -> bool:
    return engine.num_sampled >= 5


class _BreakingRunner(FakeRunner):
    def step(self, batch: StepBatch) -> Sampled:
        if int(np.max(batch.decode_positions, initial=0)) >= 10:
            raise RuntimeError("out of luck")
        return super().step(batch)


@pytest.mark.parametrize("is_streaming", [False, True])
async def test_step_that_raises_ends_every_request_with_an_error(is_streaming: bool) -> None:
    runner = _BreakingRunner(num_rows=2, max_model_len=64, vocab_size=300, faults=Faults())
    service = EmbeddedEngine(runner, EngineSettings(model_name="breaking"))
    server = EngineServer(service)
    async with aiohttp.ClientSession(await server.start()) as http:

        async def ask() -> str:
            async with http.post(
                "/inference/v1/generate", json=ENDLESS | {"stream": is_streaming}
            ) as response:
                # A stream that began before the failure has its status already; the error is its last event.
                assert response.status == 500 or is_streaming
                return await response.text()

        async with asyncio.timeout(DEADLINE_S):
            answers = await asyncio.gather(*(ask() for _ in range(4)))
        assert all("out of luck" in answer for answer in answers)
        async with http.get("/health") as response:
            assert response.status == 503
        async with http.post("/inference/v1/generate", json=ENDLESS) as response:
            assert response.status == 500
    assert service.failed.is_set()
    await server.stop()
