"""Sessions of agents outside the platform: opened once, ended when they go silent, admitted like any others."""

import asyncio
import json
from typing import Any

from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.gateway_world import GatewayWorld

USER = {"role": "user", "content": "?"}
SESSIONS = "SELECT slot, attempt, state, reward FROM trajectory_session ORDER BY slot, attempt"
MOMENTS = """SELECT column_name FROM information_schema.columns
             WHERE table_name = 'trajectory_session' AND data_type LIKE 'timestamp%'"""


async def start(world: GatewayWorld, **job: Any) -> None:
    await world.start_engines(lambda prompt: "yes<|im_end|>", environment="external", **job)
    world.make_token()


async def session_open(
    world: GatewayWorld, group: str, *, key: str | None = None
) -> tuple[int, dict[str, Any]]:
    assert world.http is not None
    headers = {"Authorization": f"Bearer {world.api_token}"} | ({"Idempotency-Key": key} if key else {})
    body = {"job": show_id(IdKind.JOB, world.job_id), "group": group}
    async with world.http.post(world.base_url + "/v1/sessions", json=body, headers=headers) as response:
        return response.status, await response.json()


async def opened(world: GatewayWorld, group: str) -> dict[str, Any]:
    status, session = await session_open(world, group)
    assert status == 201, session
    return session


async def report(world: GatewayWorld, session: dict[str, Any], **reward: Any) -> tuple[int, bytes]:
    return await world.post(f"/v1/sessions/{session['session']}/reward", reward, world.api_token)


async def close(world: GatewayWorld, session: dict[str, Any]) -> None:
    assert (await world.post(f"/v1/sessions/{session['session']}/close", {}, world.api_token))[0] == 204


def let_a_day_pass(world: GatewayWorld, *, states: tuple[str, ...] = ("open",)) -> None:
    let_time_pass(world, "1 day", states=states)


def let_time_pass(world: GatewayWorld, interval: str, *, states: tuple[str, ...] = ("open",)) -> None:
    """Move all recorded times of the sessions in these states into the past."""
    for (column,) in world.sql(MOMENTS):
        world.sql(
            f"UPDATE trajectory_session SET {column} = {column} - %s::interval WHERE state = ANY(%s)",
            [interval, list(states)],
        )


async def silence(world: GatewayWorld) -> None:
    """Wait until no session is open. A recent request counts for another second, so days pass again and again."""

    async def nobody_is_open() -> bool:
        let_a_day_pass(world)
        await asyncio.sleep(0.5)
        return world.sql("SELECT count(*) FROM trajectory_session WHERE state = 'open'") == [(0,)]

    await world.until(nobody_is_open, what="silent sessions end", timeout_s=30)


async def test_opening_whose_answer_was_lost_is_answered_again(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await start(world)
    first = await session_open(world, "task 1", key="run-7/task-1/0")
    assert first[0] == 201
    again = await asyncio.gather(*[session_open(world, "task 1", key="run-7/task-1/0") for _ in range(5)])
    assert [answer[1] for answer in again] == [first[1]] * 5
    assert world.sql("SELECT count(*) FROM trajectory_session") == [(1,)]
    assert {status for status, _ in again} == {200}
    await world.chat(first[1]["api_key"], [USER])

    status, problem = await session_open(world, "task 2", key="run-7/task-1/0")
    assert (status, problem["errors"][0]["field"]) == (422, "Idempotency-Key")
    status, problem = await session_open(world, "task 1", key="x" * 201)
    assert (status, problem["errors"][0]["field"]) == (400, "Idempotency-Key")
    at_once = await asyncio.gather(*[session_open(world, "task 1", key="another") for _ in range(5)])
    assert sorted(status for status, _ in at_once) == [200, 200, 200, 200, 201]
    assert len({answer["session"] for _, answer in at_once}) == 1


async def test_sessions_that_fell_silent_leave_their_places_and_their_group_trains(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await start(world, rollout={"group_size": 4})
    whole, rewarded, crashed, _never_spoke = [await opened(world, "task 1") for _ in range(4)]
    for session in (whole, rewarded, crashed):
        await world.chat(session["api_key"], [USER])
    assert (await report(world, whole, reward=1.0))[0] == 204
    await close(world, whole)
    assert (await report(world, rewarded, reward=0.5))[0] == 204
    await silence(world)
    assert world.sql(SESSIONS) == [
        (0, 1, "closed", 1.0),
        (1, 1, "closed", 0.5),
        (2, 1, "failed", None),
        (3, 1, "failed", None),
    ]
    assert world.sql("SELECT DISTINCT reason FROM trajectory_session WHERE state = 'failed'") == [
        ("expired: it was silent for 900 s",)
    ]
    status, _ = await world.post("/v1/chat/completions", {"messages": [USER]}, crashed["api_key"])
    assert status == 400
    await opened(world, "task 1")
    assert world.sql(SESSIONS)[3] == (2, 2, "open", None), "the place is free for another try of this group"

    await silence(world)  # this attempt expires too, and nobody opens another one
    assert world.sql("SELECT state FROM trajectory_group") == [("open",)]
    let_a_day_pass(world, states=("closed", "failed"))

    async def is_finalized() -> bool:
        return world.sql("SELECT state FROM trajectory_group") != [("open",)]

    await world.until(is_finalized, what="the group is finalized with what it has")
    assert world.sql("SELECT state, num_rewarded, reason FROM trajectory_group") == [
        ("ready", 2, "2 of 4 sessions have an outcome")
    ]


async def test_session_that_goes_on_calling_outlives_a_silent_one(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await start(world)
    silent, calling = [await opened(world, "task 1") for _ in range(2)]
    await world.chat(silent["api_key"], [USER])

    async def silent_one_is_over() -> bool:
        await world.chat(calling["api_key"], [USER])
        await asyncio.sleep(1.5)  # a request counts within a second
        let_time_pass(world, "5 minutes")
        return bool(world.sql(SESSIONS)[0][2] != "open")

    await world.until(silent_one_is_over, what="the silent session ends", timeout_s=30)
    assert world.sql(SESSIONS) == [(0, 1, "failed", None), (1, 1, "open", None)]
    await world.chat(calling["api_key"], [USER])


async def test_calls_and_turns_that_run_keep_a_session_alive(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    world.make_job(environment="external", environment_fields={"session_ttl_s": 2})
    world.make_token()
    await world.start_gateway()
    session = await opened(world, "task 1")
    assert session["ttl_s"] == 2
    ((expires_at,),) = world.sql("SELECT expires_at FROM trajectory_session")
    turn = asyncio.create_task(world.chat(session["api_key"], [USER]))  # held: there is no engine

    async def is_past_its_time() -> bool:
        return bool(world.sql("SELECT now() > %s + interval '3 s'", [expires_at])[0][0])

    await world.until(is_past_its_time, what="more than its time passed")
    assert world.sql(SESSIONS) == [(0, 1, "open", None)]
    await world.start_engine(lambda prompt: "yes<|im_end|>")
    await turn

    async def is_over() -> bool:
        return world.sql(SESSIONS) == [(0, 1, "failed", None)]

    await world.until(is_over, what="nothing is heard of it any more")


async def test_groups_from_outside_keep_to_the_staleness_bound(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await start(world, algorithm={"max_staleness": 0})
    first = await opened(world, "task 1")
    status, problem = await session_open(world, "task 2")
    assert status == 429
    assert "staleness bound" in problem["detail"]
    second = await opened(world, "task 1")  # a group that has begun admits all of its sessions
    for reward, session in enumerate((first, second)):
        await world.chat(session["api_key"], [USER])
        assert (await report(world, session, reward=reward))[0] == 204
        await close(world, session)
    assert (await session_open(world, "task 2"))[0] == 429  # ready, not trained yet
    world.sql("UPDATE trajectory_group SET state = 'dropped'")
    assert (await session_open(world, "task 2"))[0] == 201


async def test_reward_of_a_branch_is_refused_as_it_would_not_be_trained(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await start(world)
    session = await opened(world, "task 1")
    await world.chat(session["api_key"], [USER])
    status, raw = await report(world, session, reward=1.0, branch=1)
    assert status == 422
    assert json.loads(raw)["error"]["param"] == "branch"
    assert world.sql("SELECT reward, metrics FROM trajectory_session") == [(None, {})]
