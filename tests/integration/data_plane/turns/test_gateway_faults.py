"""Turns while engines, the gateway, the database and clients fail: nothing is lost or stored twice."""

import asyncio
import json
from typing import Any

import aiohttp
import numpy as np
import openai

from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.store.values import unpacked
from tests.fakes.scripted_engine import ScriptedEngine, logprob_of
from tests.fixtures.gateway_world import GatewayWorld

ANSWER = "The quick answer is that twelve and thirty four are forty six, and that is all there is to say.<|im_end|>"
TEXT = ANSWER.removesuffix("<|im_end|>")
USER: Any = {"role": "user", "content": "12+34?"}
ROW = "SELECT token_ids, logprobs, version_spans, num_handovers, num_continuations FROM trajectory_node WHERE kind = 2"


def script(prompt: str) -> str:
    return ANSWER


def num_read_again(world: GatewayWorld) -> int:
    """Return how many tokens are booked as read again because turns left their phases."""
    ((num_tokens,),) = world.sql("SELECT sum(num_read_again_tokens)::int FROM scheduling_phase")
    return int(num_tokens)


async def session_key(world: GatewayWorld) -> str:
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    key: str = group["sessions"][0]["api_key"]
    return key


async def stream_text(client: openai.AsyncOpenAI) -> str:
    """Read one streamed answer to its end."""
    text = ""
    stream = await client.chat.completions.create(
        model="tiny",
        messages=[USER],
        stream=True,
        stream_options={"include_usage": True},
    )
    usage = None
    async for chunk in stream:
        usage = chunk.usage or usage
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    assert usage is not None
    return text


def check_row(world: GatewayWorld, engine: ScriptedEngine) -> tuple[Any, ...]:
    """Check that there is exactly one answer, complete and exact; return its spans and counts."""
    ((ids, logprobs, *rest),) = world.sql(ROW)
    tokens = np.frombuffer(unpacked(ids), dtype="<i4").tolist()
    assert tokens == engine.text.tokenizer.encode(ANSWER, add_special_tokens=False).ids
    assert np.frombuffer(unpacked(logprobs), dtype="<f4").tolist() == [logprob_of(token) for token in tokens]
    return tuple(rest)


def client_of(world: GatewayWorld, key: str, *, max_retries: int = 0) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=world.base_url + "/v1", api_key=key, max_retries=max_retries)


async def test_an_engine_that_dies_in_mid_stream_is_continued_elsewhere(gateway_world: GatewayWorld) -> None:
    engines = await gateway_world.start_engines(script, num_engines=2)
    for engine in engines:
        engine.die_after, engine.step_s = 12, 0.002
    key = await session_key(gateway_world)
    async with client_of(gateway_world, key) as client:
        assert await stream_text(client) == TEXT
    spans, handovers, continuations = check_row(gateway_world, engines[0])
    assert (spans, continuations) == ([0, 0], handovers)
    assert handovers >= 1


async def test_an_aborted_answer_goes_on_and_plain_clients_do_not_notice(gateway_world: GatewayWorld) -> None:
    engines = await gateway_world.start_engines(script, num_engines=2)
    for engine in engines:
        engine.abort_after = 9
        engine.is_unpacked = True
    key = await session_key(gateway_world)
    answer = await gateway_world.chat(key, [USER])
    assert answer["choices"][0]["message"]["content"] == TEXT
    spans, handovers, continuations = check_row(gateway_world, engines[0])
    assert (spans, handovers, continuations) == ([0, 0], 2, 2)
    num_tokens = len(engines[0].text.tokenizer.encode(ANSWER).ids)
    assert answer["usage"]["completion_tokens"] == num_tokens
    num_prompt = answer["usage"]["prompt_tokens"]
    expected = (num_prompt + 9) + (num_prompt + 18)

    async def is_booked() -> bool:
        return bool(num_read_again(gateway_world) == expected)

    await gateway_world.until(is_booked, what=f"{expected} tokens are booked as read again")


async def test_a_version_that_changes_in_mid_turn_is_recorded_token_by_token(
    gateway_world: GatewayWorld,
) -> None:
    (engine,) = await gateway_world.start_engines(script)
    key = await session_key(gateway_world)
    engine.version_after, engine.step_s = (7, 1), 0.002
    async with client_of(gateway_world, key) as client:
        assert await stream_text(client) == TEXT
        assert check_row(gateway_world, engine)[0] == [0, 0, 7, 1]
    engine.version_after = (5, 4)  # the table still says 0, but the engine serves 1 and answers 409
    await gateway_world.chat(key, [USER])
    assert engine.num_statuses == {409: 1}
    spans = [row[2] for row in gateway_world.sql(ROW + " ORDER BY node_index")]
    assert spans == [[0, 0, 7, 1], [0, 1, 5, 4]]


async def test_a_turn_is_never_continued_by_an_older_version(gateway_world: GatewayWorld) -> None:
    old, new = await gateway_world.start_engines(script, num_engines=2)
    assert old.claims is not None
    assert new.claims is not None
    gateway_world.end_phase(old.claims)
    key = await session_key(gateway_world)
    new.version_after, new.step_s = (3, 2), 0.01
    async with client_of(gateway_world, key) as client:
        reading = asyncio.create_task(stream_text(client))
        await gateway_world.until(_is_at(new, 2), what="the update")
        new.is_draining, new.abort_after = True, 5
        gateway_world.end_phase(new.claims)
        await gateway_world.until(_is_idle(new), what="the engine to be left")
        gateway_world.end_phase(old.claims, "active")
        newest = await gateway_world.start_engine(script, version=2)
        assert await reading == TEXT
    assert (old.num_requests, newest.num_requests) == (0, 1)
    assert check_row(gateway_world, new)[0] == [0, 0, 3, 2]


async def test_a_turn_without_an_engine_is_held_until_one_appears(gateway_world: GatewayWorld) -> None:
    await gateway_world.start_engines(script, num_engines=0)
    key = await session_key(gateway_world)
    turn = asyncio.create_task(gateway_world.chat(key, [USER]))
    await gateway_world.until(_metric(gateway_world, "turns_held", 1), what="the turn to be held")
    engine = await gateway_world.start_engine(script)
    assert (await turn)["choices"][0]["message"]["content"] == TEXT
    check_row(gateway_world, engine)


async def test_a_client_that_vanishes_frees_the_engine_and_its_retry_goes_on(
    gateway_world: GatewayWorld,
) -> None:
    (engine,) = await gateway_world.start_engines(script)
    key = await session_key(gateway_world)
    engine.step_s = 0.02
    body = json.dumps({"messages": [USER], "stream": True}).encode()
    url, headers = gateway_world.base_url + "/v1/chat/completions", {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as http:
        async with http.post(url, data=body, headers=headers) as response:
            await response.content.readuntil(b'"content":"T')
            response.close()
        await gateway_world.until(_is_idle(engine), what="the engine's work to be aborted", timeout_s=2.0)
        assert gateway_world.sql(ROW) == []
        engine.step_s = 0.0
        for attempt in ("1", "2"):  # continued first, then answered from the record
            async with http.post(
                url, data=body, headers=headers | {"x-stainless-retry-count": attempt}
            ) as response:
                lines = (await response.read()).split(b"\n\n")
            chunks = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
            assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == TEXT
    check_row(gateway_world, engine)
    assert engine.num_requests == 2


async def test_retries_right_after_a_loss_are_the_same_turn(gateway_world: GatewayWorld) -> None:
    """They have no mark, and may arrive before the gateway has seen that the connection is lost."""
    (engine,) = await gateway_world.start_engines(script)
    engine.step_s = 0.02
    url = gateway_world.base_url + "/v1/chat/completions"
    headers = {"Authorization": f"Bearer {await session_key(gateway_world)}"}
    body = json.dumps({"messages": [USER], "stream": True}).encode()
    async with aiohttp.ClientSession() as http:
        for _ in range(3):
            async with http.post(url, data=body, headers=headers) as response:
                await response.content.readuntil(b'"content":"T')
                response.close()
        async with http.post(url, data=body, headers=headers) as response:
            lines = (await response.read()).split(b"\n\n")
    chunks = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == TEXT
    check_row(gateway_world, engine)


async def test_a_turn_that_nobody_came_back_for_is_recorded_as_partial(gateway_world: GatewayWorld) -> None:
    gateway_world.changes["retry_window_s"] = 0.0
    (engine,) = await gateway_world.start_engines(script)
    key = await session_key(gateway_world)
    engine.step_s = 0.02
    url, headers = gateway_world.base_url + "/v1/chat/completions", {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as http:
        body = json.dumps({"messages": [USER], "stream": True}).encode()
        async with http.post(url, data=body, headers=headers) as response:
            await response.content.readuntil(b'"content":"T')
            response.close()

    async def is_recorded() -> bool:
        return bool(gateway_world.sql(ROW))

    await gateway_world.until(is_recorded, what="the partial turn to be recorded")
    engine.step_s = 0.0
    assert (await gateway_world.chat(key, [USER]))["choices"][0]["message"]["content"] == TEXT
    rows = gateway_world.sql(
        "SELECT kind, is_partial, finish_reason FROM trajectory_node ORDER BY node_index"
    )
    assert rows == [(0, False, None), (2, True, "abort"), (2, False, "stop")]
    assert gateway_world.sql("SELECT max(num_turns) FROM trajectory_session") == [(1,)]


async def test_a_killed_gateway_loses_nothing_and_doubles_nothing(gateway_world: GatewayWorld) -> None:
    (engine,) = await gateway_world.start_engines(script)
    key = await session_key(gateway_world)
    first = await gateway_world.chat(key, [{"role": "user", "content": "before"}])
    engine.step_s = 0.02
    async with client_of(gateway_world, key, max_retries=8) as client:
        messages: Any = [{"role": "user", "content": "before"}, first["choices"][0]["message"], USER]
        turn = asyncio.create_task(client.chat.completions.create(model="tiny", messages=messages))
        await gateway_world.until(_is_busy(engine), what="the turn to be in the making")
        gateway_world.kill_gateway()
        engine.step_s = 0.0
        await gateway_world.start_gateway()
        assert (await turn).choices[0].message.content == TEXT
    rows = gateway_world.sql("SELECT kind, parent_index, drift FROM trajectory_node ORDER BY node_index")
    assert rows == [(0, None, "clean"), (2, 0, None), (1, 1, "clean"), (2, 2, None)]
    assert gateway_world.sql("SELECT max(num_turns) FROM trajectory_session") == [(2,)]


async def test_lost_database_connections_delay_a_turn_and_nothing_else(gateway_world: GatewayWorld) -> None:
    (engine,) = await gateway_world.start_engines(script)
    key = await session_key(gateway_world)
    await gateway_world.chat(key, [{"role": "user", "content": "before"}])
    engine.step_s = 0.01
    turn = asyncio.create_task(gateway_world.chat(key, [USER]))
    await gateway_world.until(_is_busy(engine), what="the turn to be in the making")
    gateway_world.sql(
        """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND pid <> pg_backend_pid()"""
    )
    assert (await turn)["choices"][0]["message"]["content"] == TEXT
    assert gateway_world.sql(
        "SELECT count(*), count(DISTINCT turn_id) FROM trajectory_node WHERE kind = 2"
    ) == [(2, 2)]


def _is_at(engine: ScriptedEngine, version: int) -> Any:
    async def check() -> bool:
        return engine.version == version

    return check


def _is_idle(engine: ScriptedEngine) -> Any:
    async def check() -> bool:
        return engine.num_in_flight == 0

    return check


def _is_busy(engine: ScriptedEngine) -> Any:
    async def check() -> bool:
        return engine.num_in_flight == 1

    return check


def _metric(world: GatewayWorld, name: str, value: float) -> Any:
    async def check() -> bool:
        assert world.http is not None
        async with world.http.get(world.base_url + "/metrics") as response:
            return f"seamlessflow_gateway_{name} {value:.1f}" in await response.text()

    return check
