"""Turns at an engine that is stopped while its connections stay open: they continue elsewhere, or are held."""

import asyncio
import json
from typing import Any

import numpy as np

from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.store.values import unpacked
from tests.fakes.scripted_engine import ScriptedEngine, logprob_of
from tests.fixtures.gateway_world import GatewayWorld

ANSWER = "The quick answer is that twelve and thirty four are forty six, and that is all there is to say.<|im_end|>"
TEXT = ANSWER.removesuffix("<|im_end|>")
USER: Any = {"role": "user", "content": "12+34?"}
SUSPECTED_WITHIN_S = 12.0  # half of that on an idle machine
NUM_TOKENS_BEFORE = 12


def script(prompt: str) -> str:
    return ANSWER


async def open_session(world: GatewayWorld) -> tuple[Any, str, str]:
    """Return the claims of a runner, and the id and key of the session that it leased."""
    claims = world.make_phase(Role.AGENT)
    (group,) = await world.lease(claims, max_sessions=2)
    session = group["sessions"][0]
    return claims, session["session_id"], session["api_key"]


async def ended(turn: "asyncio.Task[Any]", *, timeout_s: float) -> bool:
    done, _ = await asyncio.wait([turn], timeout=timeout_s)
    return bool(done)


def events(world: GatewayWorld) -> list[tuple[str, dict[str, Any]]]:
    return world.sql("SELECT kind, data FROM common_event WHERE kind LIKE 'engine.%%' ORDER BY id", [])


def check_answer(world: GatewayWorld, engine: ScriptedEngine) -> int:
    """Check that there is exactly one answer, complete and exact; return how often it changed engines."""
    ((ids, logprobs, handovers),) = world.sql(
        "SELECT token_ids, logprobs, num_handovers FROM trajectory_node WHERE kind = 2"
    )
    tokens = np.frombuffer(unpacked(ids), dtype="<i4").tolist()
    assert tokens == engine.text.tokenizer.encode(ANSWER, add_special_tokens=False).ids
    assert np.frombuffer(unpacked(logprobs), dtype="<f4").tolist() == [logprob_of(token) for token in tokens]
    return int(handovers)


async def test_stream_of_a_stopped_engine_goes_on_elsewhere_and_nothing_is_doubled(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    engines = await world.start_engines(script, num_engines=2)
    _, _, key = await open_session(world)
    for engine in engines:
        engine.freeze_after = NUM_TOKENS_BEFORE
    body = {"messages": [USER], "stream": True}
    turn = asyncio.create_task(world.post("/v1/chat/completions", body, key))
    await world.until(_any_frozen(engines), what="an engine to stop")
    (stopped,) = (engine for engine in engines if engine.is_frozen)
    (other,) = (engine for engine in engines if engine is not stopped)
    other.freeze_after = None

    assert await ended(turn, timeout_s=SUSPECTED_WITHIN_S), "the turn waits for the stopped engine"
    assert _said(turn.result()[1]) == TEXT
    assert check_answer(world, other) == 1

    stopped.thaw()
    await world.until(_rejoined(world), what="the engine to rejoin")
    (suspected, told), (rejoined, _) = events(world)
    assert (suspected, rejoined) == ("engine.suspected", "engine.rejoined")
    assert stopped.claims is not None
    assert told["phase_id"] == str(stopped.claims.phase_id)
    assert told["machine"] == "m1" if stopped is engines[0] else "m2"
    assert told["seconds"] >= 5.0
    assert check_answer(world, other) == 1  # later tokens of the stopped engine are not added


async def test_turn_of_the_only_engine_is_held_while_it_is_stopped_and_the_task_is_not_charged(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    (engine,) = await world.start_engines(script)
    claims, session_id, key = await open_session(world)
    engine.freeze()
    turn = asyncio.create_task(world.post("/v1/chat/completions", {"messages": [USER]}, key))
    stopped_s = 7.0
    assert not await ended(turn, timeout_s=stopped_s)
    engine.thaw()
    assert await ended(turn, timeout_s=SUSPECTED_WITHIN_S)
    status, raw = turn.result()
    assert (status, json.loads(raw)["choices"][0]["message"]["content"]) == (200, TEXT)
    check_answer(world, engine)

    status, raw = await world.phase_post(claims, "/runner/v1/sessions/held", {"session_ids": [session_id]})
    assert (status, json.loads(raw)["held_s"][session_id] >= stopped_s - 1.0) == (200, True)


async def test_engine_that_works_on_one_long_answer_is_left_alone(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    (engine,) = await world.start_engines(script)
    claims, session_id, key = await open_session(world)
    num_tokens = len(engine.text.tokenizer.encode(ANSWER).ids)
    engine.step_s = 7.0 / num_tokens
    await world.chat(key, [USER])
    assert check_answer(world, engine) == 0
    assert events(world) == []
    _, raw = await world.phase_post(claims, "/runner/v1/sessions/held", {"session_ids": [session_id]})
    assert json.loads(raw)["held_s"][session_id] < 1.0


def _said(stream: bytes) -> str:
    chunks = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])


def _any_frozen(engines: list[ScriptedEngine]) -> Any:
    async def condition() -> bool:
        return any(engine.is_frozen for engine in engines)

    return condition


def _rejoined(world: GatewayWorld) -> Any:
    async def condition() -> bool:
        return any(kind == "engine.rejoined" for kind, _ in events(world))

    return condition
