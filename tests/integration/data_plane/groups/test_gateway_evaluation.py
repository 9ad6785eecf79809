"""Evaluations through a real gateway: begun when due, measured completely, never trained, second in the queue."""

import asyncio
from typing import Any

import pytest

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import NUM_HELD_OUT, GatewayWorld

USER = {"role": "user", "content": "?"}
BATCH: dict[str, Any] = {"applied_batch": 0, "durable_batch": 0, "policy_version": 0, "wait_s": 0.0}
EVALUATION = {"tasks": "held_out", "every_versions": 2, "samples_per_task": 2, "temperature": 0.5}
ROWS = "SELECT version, state, num_rewarded, reward_mean, pass_at_1, pass_at_k FROM trajectory_evaluation ORDER BY 1"


def answer(prompt: str) -> str:
    return "yes<|im_end|>"


async def measure(world: GatewayWorld, agent: Any, *rewards: float | None) -> None:
    """Run one turn in every session of the running evaluation; None: all three attempts of the slot fail."""
    groups = await world.lease(agent, is_evaluation=True)
    sessions = [session for group in groups for session in group["sessions"]]
    for reward, session in zip(rewards, sessions, strict=True):
        await world.chat(session["api_key"], [USER])
        if reward is not None:
            await world.finish(agent, session["session_id"], reward=reward)
            continue
        await world.finish(agent, session["session_id"], failure="crashed")
        for _ in range(2):
            ((again,),) = [group["sessions"] for group in await world.lease(agent, is_evaluation=True)]
            await world.finish(agent, again["session_id"], failure="crashed")


def publish(world: GatewayWorld, version: int) -> None:
    """Record a publication as the control plane does."""
    world.sql("UPDATE jobs_job SET latest_version = %s, published_batch = %s", [version, version])


async def test_a_version_is_measured_whole_and_its_figures_are_metrics(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(answer, evaluation=EVALUATION)
    agent = world.make_phase(Role.AGENT)
    groups = await world.lease(agent, is_evaluation=True)
    assert [(group["index"], group["evaluation_version"]) for group in groups] == [(0, 0), (1, 0)]
    assert {group["task"]["question"] for group in groups} == {-1, -2}
    sessions = [session for group in groups for session in group["sessions"]]
    for reward, session in zip([1.0, 0.0, 0.5, 0.0], sessions, strict=True):
        await world.chat(session["api_key"], [USER])
        assert world.sql(ROWS) == [(0, "running", None, None, None, {})]
        await world.finish(agent, session["session_id"], reward=reward)
        await world.finish(agent, session["session_id"], reward=reward)  # reported twice, recorded once

    assert world.sql(ROWS) == [(0, "finished", 4, 0.375, 0.25, {"1": 0.25, "2": 0.5})]
    values = dict(world.sql("SELECT name, value FROM telemetry_metricpoint WHERE step = 0"))
    assert {name: values[name] for name in ("eval/reward_mean", "eval/pass_at_1", "eval/pass_at_2")} == {
        "eval/reward_mean": 0.375, "eval/pass_at_1": 0.25, "eval/pass_at_2": 0.5,
    }  # fmt: skip
    ((sampled,),) = world.sql("SELECT sum(num_sampled_tokens)::int FROM trajectory_session")
    assert values["eval/num_sampled_tokens"] == sampled > 0
    assert (values["eval/num_rewarded"], values["eval/version_lag_max"]) == (4, 0)
    assert [row[0] for row in world.sql("SELECT to_state FROM common_event WHERE kind = 'evaluation.state'")] == [
        "running", "finished",
    ]  # fmt: skip
    assert await world.lease(agent, is_evaluation=True) == []  # version 0 is measured once


async def test_held_out_groups_are_no_part_of_training(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(
        answer, evaluation=EVALUATION, algorithm={"max_staleness": 0, "sampling": {"dynamic": True}}
    )
    agent, trainer = world.make_phase(Role.AGENT), world.make_phase(Role.TRAIN)
    await measure(
        world, agent, 1.0, 1.0, 1.0, 1.0
    )  # equal rewards: dynamic sampling would drop a training group
    status, _ = await world.phase_post(trainer, "/trainer/v1/batches/lease", BATCH)
    assert status == 204, "nothing to train"

    (group,) = await world.lease(agent)  # the bound lets one begin: evaluated groups take no room
    assert (group["index"], group.get("evaluation_version")) == (0, None)
    for reward, session in enumerate(group["sessions"]):
        await world.chat(session["api_key"], [USER], temperature=0.5)
        await world.finish(agent, session["session_id"], reward=reward)
    status, _ = await world.phase_post(trainer, "/trainer/v1/batches/lease", BATCH)
    assert status == 200
    assert world.sql("SELECT state, evaluation_version, batch_number FROM trajectory_group ORDER BY created_at") == [
        ("evaluated", 0, None), ("evaluated", 0, None), ("batched", None, 1),
    ]  # fmt: skip


async def test_sessions_without_an_outcome_do_not_count_but_do_not_stop_it_either(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(answer, evaluation=EVALUATION)
    await measure(world, world.make_phase(Role.AGENT), 1.0, 0.0, None, None)

    assert world.sql(ROWS) == [(0, "finished", 2, 0.5, 0.5, {"1": 0.5, "2": 1.0})]


async def test_the_newest_version_is_measured_every_so_often_and_the_last_one_always(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(answer, evaluation=EVALUATION)
    agent = world.make_phase(Role.AGENT)
    measured = []
    for version in range(6):
        publish(world, version)
        world.set_served_version(version)
        world.engines[0].version = version
        if await world.lease(agent, max_sessions=0, is_evaluation=True) == [] and world.sql(
            "SELECT 1 FROM trajectory_evaluation WHERE state = 'running'"
        ):
            await measure(world, agent, 0.0, 0.0, 0.0, 0.0)
            measured.append(version)

    assert measured == [0, 2, 4, 5]
    assert [row[:2] for row in world.sql(ROWS)] == [(version, "finished") for version in measured]


async def test_no_token_is_older_than_the_version_and_later_ones_are_told(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(answer, evaluation=EVALUATION)
    publish(world, 2)
    agent = world.make_phase(Role.AGENT)
    groups = await world.lease(agent, is_evaluation=True)
    sessions = [session for group in groups for session in group["sessions"]]
    early = [asyncio.create_task(world.chat(session["api_key"], [USER])) for session in sessions[:2]]

    async def are_held() -> bool:
        body = {"session_ids": [session["session_id"] for session in sessions[:2]]}
        _, raw = await world.phase_post(agent, "/runner/v1/sessions/held", body)
        return all(held_s > 0 for held_s in world.decode(raw)["held_s"].values())

    await world.until(are_held, what="turns of version 2 are held while the engine serves version 0")
    for version, turns in (
        (2, early),
        (3, [world.chat(session["api_key"], [USER]) for session in sessions[2:]]),
    ):
        world.set_served_version(version)
        world.engines[0].version = version
        world.sql("SELECT pg_notify('sf_engines', %s)", [str(world.job_id)])
        await asyncio.gather(*turns)
    for session in sessions:
        await world.finish(agent, session["session_id"], reward=1.0)

    spans = world.sql("SELECT version, min_version, max_version FROM trajectory_evaluation")
    assert spans == [(2, 2, 3)]
    assert world.sql("SELECT value FROM telemetry_metricpoint WHERE name = 'eval/version_lag_max'") == [
        (1.0,)
    ]


async def test_it_is_named_after_the_oldest_version_that_sampled_for_it(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(answer, evaluation=EVALUATION)
    agent = world.make_phase(Role.AGENT)
    groups = await world.lease(agent, is_evaluation=True)
    publish(world, 1)
    world.engines[0].version = 1  # before its first turn
    for session in (session for group in groups for session in group["sessions"]):
        await world.chat(session["api_key"], [USER])
        assert world.sql("SELECT version FROM trajectory_evaluation") == [(0,)]
        await world.finish(agent, session["session_id"], reward=1.0)

    assert world.sql("SELECT version, min_version, max_version FROM trajectory_evaluation") == [(1, 1, 1)]
    assert world.sql("SELECT DISTINCT evaluation_version FROM trajectory_group") == [(1,)]
    assert world.sql("SELECT DISTINCT step FROM telemetry_metricpoint") == [(1,)]
    assert await world.lease(agent, is_evaluation=True) == []  # the next one is due at version 2


async def test_its_sessions_sample_at_their_own_temperature(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    (engine,) = await world.start_engines(answer, evaluation=EVALUATION)
    agent = world.make_phase(Role.AGENT)
    temperatures = []
    for is_evaluation in (True, False):
        group, *_ = await world.lease(agent, is_evaluation=is_evaluation)
        await world.chat(group["sessions"][0]["api_key"], [USER], temperature=0.9)
        temperatures.append(engine.sampling["temperature"])

    assert temperatures == [0.5, 1.0]
    flags = world.sql("SELECT flags FROM trajectory_node WHERE kind = 2 ORDER BY created_at")
    assert flags == [({"overridden": {"temperature": 0.9}},)] * 2


async def test_a_gateway_that_dies_measures_on_and_counts_nothing_twice(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    (engine,) = await world.start_engines(answer, evaluation=EVALUATION)
    agent = world.make_phase(Role.AGENT)
    groups = await world.lease(agent, max_sessions=3, is_evaluation=True)
    first, second, third = (session for group in groups for session in group["sessions"])
    await world.chat(first["api_key"], [USER])
    await world.finish(agent, first["session_id"], reward=1.0)
    world.kill_gateway()
    await world.start_gateway()

    await world.chat(second["api_key"], [USER])  # read back from its rows, and still part of an evaluation
    assert engine.sampling["temperature"] == 0.5
    await world.finish(agent, second["session_id"], reward=1.0)
    world.end_phase(agent, "failed")  # its runner is gone too: the third session runs again
    await measure(world, world.make_phase(Role.AGENT), 0.0, 0.0)

    assert third["attempt"] == 1
    assert world.sql(ROWS) == [(0, "finished", 4, 0.5, 0.5, {"1": 0.5, "2": 0.5})]
    assert world.sql("SELECT count(*) FROM telemetry_metricpoint WHERE name = 'eval/pass_at_1'") == [(1,)]


@pytest.mark.parametrize("num_gateway_deaths", [0, 1])
async def test_sessions_that_end_at_once_finish_it_once(
    gateway_world: GatewayWorld, num_gateway_deaths: int
) -> None:
    """The last outcomes of several groups commit at the same time: exactly one of them completes the evaluation."""
    world = gateway_world
    await world.start_engines(answer, evaluation=EVALUATION)
    agent = world.make_phase(Role.AGENT)
    groups = await world.lease(agent, is_evaluation=True)
    for _ in range(num_gateway_deaths):
        world.kill_gateway()
        await world.start_gateway()
    ends = [
        world.finish(agent, session["session_id"], reward=1.0)
        for group in groups
        for session in group["sessions"]
    ]
    assert len(ends) == 2 * NUM_HELD_OUT
    await asyncio.gather(*ends)

    assert world.sql(ROWS) == [(0, "finished", 4, 1.0, 1.0, {"1": 1.0, "2": 1.0})]
    finished = world.sql("SELECT count(*) FROM common_event WHERE to_state = 'finished'")
    assert finished == [(1,)]


@pytest.mark.parametrize("state", ["cancelled", "completed"])
async def test_an_evaluation_ends_with_its_job(gateway_world: GatewayWorld, state: str) -> None:
    world = gateway_world
    await world.start_engines(answer, evaluation=EVALUATION)
    agent = world.make_phase(Role.AGENT)
    groups = await world.lease(agent, is_evaluation=True)
    await world.finish(agent, groups[0]["sessions"][0]["session_id"], reward=1.0)
    world.sql("UPDATE jobs_job SET state = %s", [state])

    async def is_ended() -> bool:
        return [row[:3] for row in world.sql(ROWS)] == [(0, "cancelled", None)]

    await world.until(is_ended, what="the end of the evaluation")
    ((ended, reason),) = world.sql(
        """SELECT e.ended_at IS NOT NULL, v.reason FROM trajectory_evaluation e
           JOIN common_event v ON v.job_id = e.job_id AND v.to_state = 'cancelled'"""
    )
    assert (ended, reason) == (True, f"the evaluation of version 0 was not completed: the job is {state}")
