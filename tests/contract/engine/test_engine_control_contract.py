"""Pause, weight updates with versions, sleep: what the platform relies on between two tokens."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.contract.engine.conftest import (
    LONG,
    EngineUnderTest,
    Kind,
    StartEngine,
    Stream,
    assert_spans_cover,
    eventually,
)

OpenStream = Callable[..., Awaitable[Stream]]
PROMPT = list(range(20, 60))
ENDLESS = {"max_tokens": LONG, "ignore_eos": True, "logprobs": 0}


async def test_keep_freezes_requests_in_place_until_resume(
    engine: EngineUnderTest, open_stream: OpenStream
) -> None:
    stream = await open_stream(engine, PROMPT, **ENDLESS)

    assert await engine.post("/pause?mode=keep&clear_cache=false") == {"status": "paused"}
    sampled = await engine.metric("generation_tokens_total")
    queued = asyncio.create_task(engine.generate([33], max_tokens=2, ignore_eos=True))
    await engine.until_metric("num_requests_waiting", 1)
    assert await engine.get("/is_paused") == {"is_paused": True}
    assert await engine.metric("generation_tokens_total") == sampled

    assert await engine.post("/resume") == {"status": "resumed"}
    assert len((await queued)["choices"][0]["token_ids"]) == 2
    assert await engine.get("/is_paused") == {"is_paused": False}
    while len(stream.token_ids) <= sampled:
        assert await stream.read_chunk()
    await engine.post("/abort_requests", {})
    await stream.read_to_end()
    assert stream.final["finish_reason"] == "abort"
    assert await engine.metric("num_preemptions_total") == 0


async def test_pause_by_abort_ends_requests_with_their_tokens_and_queues_new_ones(
    engine: EngineUnderTest, open_stream: OpenStream
) -> None:
    stream = await open_stream(engine, PROMPT, **ENDLESS)

    await engine.post("/pause")
    await stream.read_to_end()
    assert stream.final["finish_reason"] == "abort"
    assert 0 < len(stream.token_ids) == len(stream.logprobs) < LONG

    queued = asyncio.create_task(engine.generate([33], max_tokens=2, ignore_eos=True))
    await engine.until_metric("num_requests_waiting", 1)
    await engine.post("/resume")
    assert len((await queued)["choices"][0]["token_ids"]) == 2


async def test_pause_by_wait_returns_when_running_requests_are_done(engine: EngineUnderTest) -> None:
    running = asyncio.create_task(engine.generate(PROMPT, max_tokens=200, ignore_eos=True))
    await engine.until_metric("num_requests_running", 1)

    await engine.post("/pause?mode=wait")

    assert await engine.metric("num_requests_running") == 0
    assert len((await running)["choices"][0]["token_ids"]) == 200
    await engine.post("/resume")


async def test_pause_by_wait_ends_when_the_last_running_request_is_aborted(
    engine: EngineUnderTest, open_stream: OpenStream
) -> None:
    stream = await open_stream(engine, PROMPT, **ENDLESS)
    pausing = asyncio.create_task(engine.post("/pause?mode=wait"))
    await eventually(lambda: _is_paused(engine))
    assert not pausing.done()

    stream.drop()

    assert await pausing == {"status": "paused"}


async def _is_paused(engine: EngineUnderTest) -> bool:
    return bool((await engine.get("/is_paused"))["is_paused"])


async def test_unknown_pause_mode_is_refused(engine: EngineUnderTest) -> None:
    await engine.post("/pause?mode=gently", status=400)
    assert await engine.get("/is_paused") == {"is_paused": False}


async def test_swap_in_flight_gives_version_spans_that_add_up(
    engine: EngineUnderTest, open_stream: OpenStream
) -> None:
    stream = await open_stream(engine, PROMPT, **ENDLESS)

    await engine.post("/pause?mode=keep&clear_cache=true")
    under_first = int(await engine.metric("generation_tokens_total"))
    await engine.update(engine.make_weights(2), version="v2")
    assert await engine.get("/weight_info") == {"weight_version": "v2"}
    await engine.post("/resume")
    while len(stream.token_ids) <= under_first + 20:
        assert await stream.read_chunk()
    await engine.post("/abort_requests", {})
    await stream.read_to_end()

    total = len(stream.token_ids)
    assert stream.final["weight_versions"] == [
        {"version": "v1", "start": 0, "end": under_first},
        {"version": "v2", "start": under_first, "end": total},
    ]
    by_chunk = {"v1": 0, "v2": 0}
    for version, count in stream.chunk_versions:
        if version is not None:
            by_chunk[version] += count
    assert by_chunk == {"v1": under_first, "v2": total - under_first}
    assert await engine.metric("num_preemptions_total") == 1


async def test_many_swaps_lose_and_double_nothing(start_engine: StartEngine) -> None:
    engine = await start_engine(Kind.FAKE)
    tasks = [
        asyncio.create_task(engine.generate([20 + index], max_tokens=300, ignore_eos=True, logprobs=0))
        for index in range(20)
    ]
    await engine.until_metric("num_requests_running", 8)
    for number in range(2, 6):
        await engine.post(f"/pause?mode=keep&clear_cache={'true' if number % 2 else 'false'}")
        await engine.update(engine.make_weights(2), version=f"v{number}")
        await engine.post("/resume")

    choices = [(await task)["choices"][0] for task in tasks]

    for choice in choices:
        assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == 300
        assert_spans_cover(choice)
    assert len({span["version"] for choice in choices for span in choice["weight_versions"]}) > 1


async def test_failed_update_leaves_weights_and_version(engine: EngineUnderTest, tmp_path: Path) -> None:
    before = await engine.generate(PROMPT, max_tokens=10, temperature=0, ignore_eos=True)
    await engine.post("/start_weight_update")

    error = await engine.post(
        "/update_weights", {"update_info": {"path": str(tmp_path / "absent.safetensors")}}, status=500
    )
    assert "absent.safetensors" in error["error"]["message"]
    await engine.post("/finish_weight_update", {"weight_version": "v9"}, status=400)

    assert await engine.get("/weight_info") == {"weight_version": "v1"}
    after = await engine.generate(PROMPT, max_tokens=10, temperature=0, ignore_eos=True)
    assert after["choices"] == before["choices"]
    await engine.update(engine.make_weights(2), version="v2")
    assert await engine.get("/weight_info") == {"weight_version": "v2"}


async def test_update_calls_out_of_order_are_refused(engine: EngineUnderTest) -> None:
    body = {"update_info": {"path": str(engine.make_weights(2))}}
    await engine.post("/update_weights", body, status=400)
    await engine.post("/finish_weight_update", {"weight_version": "v2"}, status=400)
    await engine.post("/start_weight_update")
    await engine.post("/update_weights", {"update_info": {}}, status=400)
    assert await engine.get("/weight_info") == {"weight_version": "v1"}


async def test_nothing_is_sampled_between_new_weights_and_their_name(engine: EngineUnderTest) -> None:
    await engine.post("/start_weight_update")
    await engine.post("/update_weights", {"update_info": {"path": str(engine.make_weights(2))}})
    waiting = asyncio.create_task(engine.generate(PROMPT, max_tokens=3, ignore_eos=True))
    await engine.until_metric("num_requests_waiting", 1)
    assert await engine.metric("generation_tokens_total") == 0

    await engine.post("/finish_weight_update", {"weight_version": "v2"})

    assert (await waiting)["choices"][0]["weight_versions"] == [{"version": "v2", "start": 0, "end": 3}]


async def test_version_can_be_renamed_alone(engine: EngineUnderTest) -> None:
    answer = await engine.post("/update_weight_version", {"new_version": "12"})

    assert answer == {"success": True, "new_version": "12"}
    assert await engine.get("/weight_info") == {"weight_version": "12"}


async def test_update_forgets_prefixes_of_the_old_weights(engine: EngineUnderTest) -> None:
    await engine.generate(PROMPT, max_tokens=2)
    await engine.update(engine.make_weights(2), version="v2")
    await engine.generate(PROMPT, max_tokens=2)

    assert await engine.metric("prefix_cache_hits_total") == 0


async def test_prefix_cache_can_be_reset(engine: EngineUnderTest, open_stream: OpenStream) -> None:
    await engine.generate(PROMPT, max_tokens=2)
    assert await engine.post("/reset_prefix_cache") == {"success": True}
    await engine.generate(PROMPT, max_tokens=2)
    assert await engine.metric("prefix_cache_hits_total") == 0

    stream = await open_stream(engine, PROMPT, **ENDLESS)
    assert await engine.post("/reset_prefix_cache") == {"success": False}
    await engine.post("/reset_prefix_cache?reset_running_requests=true")
    await engine.until_metric("num_preemptions_total", 1)
    stream.drop()


@pytest.mark.parametrize("mode", ["abort", "keep"])
async def test_asleep_engine_computes_nothing_until_it_is_woken(
    engine: EngineUnderTest, open_stream: OpenStream, mode: str
) -> None:
    stream = await open_stream(engine, PROMPT, **ENDLESS)

    said = await engine.post(f"/sleep?level=1&mode={mode}")
    assert said == {"status": "sleeping", "level": 1, "kept_bytes": 0}, "no device keeps anything of it"
    assert await engine.get("/is_sleeping") == {"is_sleeping": True}
    sampled = await engine.metric("generation_tokens_total")
    queued = asyncio.create_task(engine.generate(PROMPT, max_tokens=4, ignore_eos=True))
    await engine.until_metric("num_requests_waiting", 2 if mode == "keep" else 1)
    assert await engine.metric("generation_tokens_total") == sampled

    assert (await engine.post("/wake_up"))["status"] == "awake"
    assert await engine.get("/is_sleeping") == {"is_sleeping": False}
    assert len((await queued)["choices"][0]["token_ids"]) == 4
    if mode == "keep":
        while len(stream.token_ids) <= sampled:
            assert await stream.read_chunk()
        stream.drop()
    else:
        await stream.read_to_end()
        assert stream.final["finish_reason"] == "abort"


async def test_weights_can_change_while_asleep(engine: EngineUnderTest) -> None:
    await engine.post("/sleep?level=1")
    await engine.update(engine.make_weights(2), version="v2")
    await engine.post("/wake_up")

    choice = (await engine.generate(PROMPT, max_tokens=4))["choices"][0]

    assert {span["version"] for span in choice["weight_versions"]} == {"v2"}
