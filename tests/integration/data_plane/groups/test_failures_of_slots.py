"""A slot whose failures are not its agent's runs until it has an outcome; a masked timeout is none and runs no more."""

from typing import Any

from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

NUM_FAILURES = 5  # more than a slot may have of its agent


async def end_slot(world: GatewayWorld, agent: PhaseClaims, slot: int, **outcome: Any) -> None:
    """End the newest session of a slot of the first group."""
    ((session,),) = world.sql(
        "SELECT id::text FROM trajectory_session WHERE slot = %s AND state = 'open' ORDER BY opened_at LIMIT 1",
        [slot],
    )
    await world.finish(agent, session, **outcome)


async def test_failures_of_a_judge_use_up_no_attempt_and_a_group_trains_from_all_its_sessions(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", num_engines=0)
    agent = world.make_phase(Role.AGENT)
    await world.lease(agent, max_sessions=2)
    await end_slot(world, agent, 0, reward=1.0)
    for _ in range(NUM_FAILURES):
        await end_slot(world, agent, 1, failure="the judge is away", failure_kind="grading")
        (group,) = await world.lease(agent, max_sessions=1)
        assert [session["slot"] for session in group["sessions"]] == [1], "the slot does not run again"
    await end_slot(world, agent, 1, reward=0.0)

    assert world.sql("SELECT state, num_rewarded FROM trajectory_group") == [("ready", 2)]
    kinds = world.sql("SELECT failure, count(*) FROM trajectory_session GROUP BY 1 ORDER BY 1")
    assert kinds == [("", 2), ("grading", NUM_FAILURES)]


async def test_a_masked_timeout_has_no_reward_and_does_not_run_again(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", num_engines=0, rollout={"group_size": 4})
    agent = world.make_phase(Role.AGENT)
    await world.lease(agent, max_sessions=4)
    for slot, reward in enumerate((1.0, 0.0, 1.0)):
        await end_slot(world, agent, slot, reward=reward)
    await end_slot(world, agent, 3, failure="its time was up", failure_kind="timeout", is_timeout=True)

    assert world.sql("SELECT state, num_rewarded FROM trajectory_group") == [("ready", 3)]
    ended = world.sql("SELECT state, reward, is_timeout, failure FROM trajectory_session WHERE slot = 3")
    assert ended == [("failed", None, True, "timeout")]
