"""Groups, outcomes and batches: leases that outlive runners, bounds of admission, staleness."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import psycopg

from seamlessflow.core.batching.format import batch_decode
from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

USER = {"role": "user", "content": "?"}
BATCH: dict[str, Any] = {"applied_batch": 0, "durable_batch": 0, "policy_version": 0, "wait_s": 0.0}


async def make_ready(world: GatewayWorld, agent: Any, *, num_groups: int) -> None:
    """Finish groups with one turn per session and rewards 0 and 1."""
    for _ in range(num_groups):
        (group,) = await world.lease(agent, max_sessions=2)
        for reward, session in enumerate(group["sessions"]):
            await world.chat(session["api_key"], [USER])
            await world.finish(agent, session["session_id"], reward=reward)


async def test_an_abandoned_group_runs_again_and_old_keys_are_closed(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    old = world.make_phase(Role.AGENT)
    (group,) = await world.lease(old, max_sessions=2)
    await world.chat(group["sessions"][0]["api_key"], [USER])
    world.end_phase(old, "failed")
    status, _ = await world.phase_post(old, "/runner/v1/groups/lease", {"max_sessions": 2, "wait_s": 0})
    assert status == 409
    (again,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    assert (again["group_id"], again["task"]) == (group["group_id"], group["task"])
    assert [session["attempt"] for session in again["sessions"]] == [2, 2]
    status, _ = await world.post(
        "/v1/chat/completions", {"messages": [USER]}, group["sessions"][0]["api_key"]
    )
    assert status == 400
    await world.chat(again["sessions"][0]["api_key"], [USER])


async def test_asking_again_does_not_write_the_leases_of_what_runs_anew(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    agent = world.make_phase(Role.AGENT)
    (group,) = await world.lease(agent, max_sessions=2)
    expiry = "SELECT lease_expires_at, xmin::text FROM trajectory_group WHERE id = %s"
    before = world.sql(expiry, [group["group_id"]])
    await world.lease(agent, max_sessions=0)
    (other,) = await world.lease(agent, max_sessions=2)

    assert world.sql(expiry, [group["group_id"]]) == before
    assert before[0][0] is not None
    assert world.sql(expiry, [other["group_id"]])[0][0] > before[0][0]  # a leased group is held at once


async def test_the_scheduler_hears_of_whole_batches_not_of_every_group(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", rollout={"groups_per_batch": 4})
    agent = world.make_phase(Role.AGENT)
    with psycopg.connect(world.database_url, autocommit=True) as listener:
        listener.execute("LISTEN sf_scheduler")
        await make_ready(world, agent, num_groups=8)
        listener.execute("SELECT pg_notify('sf_scheduler', 'the end')")
        heard = []
        while "the end" not in heard:
            heard += [notify.payload for notify in listener.notifies(timeout=10, stop_after=1)]
    # The third, fourth, seventh and eighth. Notices about other things may come in between.
    assert heard.count("group ready") == 4


async def test_a_lull_lasts_from_when_nothing_waits_to_the_next_session(gateway_world: GatewayWorld) -> None:
    """Two groups of two may be open, so a runner with room for five sessions has room left."""
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", algorithm={"max_staleness": 1})
    agent = world.make_phase(Role.AGENT)
    lulls = "SELECT began_at, ended_at FROM trajectory_lull ORDER BY began_at"

    groups = await world.lease(agent, max_sessions=1)
    assert world.sql(lulls) == []  # it took as many as it had room for: more may be waiting
    groups += await world.lease(agent, max_sessions=5)
    ((began_at, ended_at),) = world.sql(lulls)
    assert ended_at is None
    assert await world.lease(agent, max_sessions=1) == []
    assert await world.lease(agent, max_sessions=0) == []
    assert world.sql(lulls) == [(began_at, None)]

    session = groups[0]["sessions"][0]
    await world.finish(agent, session["session_id"], failure="it broke")
    assert len(await world.lease(agent, max_sessions=1)) == 1  # the slot runs again and takes the only room
    ((began, ended),) = world.sql(lulls)
    assert began == began_at < ended


async def test_many_ends_are_taken_at_once_and_only_the_wrong_ones_refused(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    agent = world.make_phase(Role.AGENT)
    groups = await world.lease(agent)
    whole, broken = ([session["session_id"] for session in group["sessions"]] for group in groups[:2])
    stranger = str(uuid4())
    finishes: list[dict[str, Any]] = [{"session_id": session, "reward": 1.0} for session in whole]
    finishes += [{"session_id": broken[0], "reward": 1.0, "metrics": {"a\0b": 1.0}}]
    finishes += [{"session_id": broken[1], "failure": "it broke"}, {"session_id": stranger, "reward": 1.0}]

    for _ in range(2):  # repeating the report changes nothing
        status, raw = await world.phase_post(agent, "/runner/v1/sessions/ended", {"finishes": finishes})
        assert status == 200, raw
        assert json.loads(raw)["refused"].keys() == {broken[0], stranger}
    assert world.sql("SELECT state, num_rewarded FROM trajectory_group ORDER BY index LIMIT 2") == [
        ("ready", len(whole)),
        ("open", 0),
    ]
    states = dict(world.sql("SELECT id::text, state FROM trajectory_session"))
    assert {states[session] for session in whole} == {"closed"}
    assert (states[broken[0]], states[broken[1]]) == ("open", "failed")

    world.end_phase(agent)
    late = {"finishes": [{"session_id": broken[0], "reward": 1.0}]}
    status, _ = await world.phase_post(agent, "/runner/v1/sessions/ended", late)
    assert status == 409


async def test_a_slot_runs_three_times_then_the_group_is_dropped(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", algorithm={"max_staleness": 0})
    agent = world.make_phase(Role.AGENT)
    (group,) = await world.lease(agent)
    good, bad = group["sessions"]
    await world.finish(agent, good["session_id"], reward=1.0)
    for attempt in (2, 3):
        await world.finish(agent, bad["session_id"], failure="crashed")
        await world.finish(agent, bad["session_id"], failure="crashed")  # reported twice, recorded once
        (again,) = await world.lease(agent)
        (bad,) = again["sessions"]
        assert (bad["attempt"], bad["slot"]) == (attempt, 1)
    await world.finish(agent, bad["session_id"], failure="crashed")
    assert world.sql("SELECT state, reason FROM trajectory_group") == [
        ("dropped", "1 of 2 sessions have an outcome; 2 are needed")
    ]


async def test_sessions_requeued_by_a_drain_cost_no_try(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", algorithm={"max_staleness": 0})
    for drained in range(4):  # more often than a slot may fail
        agent = world.make_phase(Role.AGENT)
        (group,) = await world.lease(agent)
        assert {session["attempt"] for session in group["sessions"]} == {drained + 1}
        told, untold = group["sessions"]
        await world.finish(agent, told["session_id"], failure="drained", is_requeued=True)
        world.end_phase(agent)
        assert untold["session_id"]

    agent = world.make_phase(Role.AGENT)
    (group,) = await world.lease(agent)
    for reward, session in enumerate(group["sessions"]):
        await world.finish(agent, session["session_id"], reward=reward)

    assert world.sql("SELECT state, num_rewarded FROM trajectory_group") == [("ready", 2)]
    assert world.sql("SELECT count(*) FROM trajectory_session WHERE is_requeued") == [(8,)]


async def test_the_gateway_says_for_how_long_it_held_a_session(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", num_engines=0)
    agent = world.make_phase(Role.AGENT)
    (group, *_) = await world.lease(agent)
    held, calm = group["sessions"]

    async def held_s(session: dict[str, Any]) -> float:
        body = {"session_ids": [session["session_id"]]}
        status, raw = await world.phase_post(agent, "/runner/v1/sessions/held", body)
        assert status == 200
        return float(world.decode(raw)["held_s"][session["session_id"]])

    async def is_held() -> bool:
        return await held_s(held) > 0

    turn = asyncio.create_task(world.chat(held["api_key"], [USER]))
    await world.until(is_held, what="a turn is held")
    during = await held_s(held)
    await world.start_engine(lambda prompt: "yes<|im_end|>")
    await turn
    after = await held_s(held)

    assert 0 < during <= after
    assert await held_s(held) == after, "the clock of what is held stands still again"
    assert await held_s(calm) == 0.0


async def test_admission_keeps_to_the_staleness_bound_and_to_what_is_needed(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(
        lambda prompt: "yes<|im_end|>", algorithm={"max_staleness": 2}, train={"num_updates": 1}, num_tasks=3
    )
    agent = world.make_phase(Role.AGENT)
    groups = await world.lease(agent)
    assert len(groups) == 2  # one update and one batch to spare; the staleness bound alone would admit three
    assert await world.lease(agent) == []
    tasks = world.sql("SELECT task_index FROM trajectory_group ORDER BY index")
    assert len(set(tasks)) == 2


async def test_batches_are_numbered_replayed_and_forgotten(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    agent, trainer = world.make_phase(Role.AGENT), world.make_phase(Role.TRAIN)
    assert (await world.phase_post(trainer, "/trainer/v1/batches/lease", BATCH))[0] == 204
    await make_ready(world, agent, num_groups=2)
    first = await world.phase_post(trainer, "/trainer/v1/batches/lease", BATCH)
    second = await world.phase_post(trainer, "/trainer/v1/batches/lease", BATCH | {"applied_batch": 1})
    assert (first[0], second[0]) == (200, 200)
    world.end_phase(trainer, "failed")
    successor = world.make_phase(Role.TRAIN)
    assert await world.phase_post(successor, "/trainer/v1/batches/lease", BATCH) == first
    done = BATCH | {"applied_batch": 2, "durable_batch": 1}
    assert (await world.phase_post(successor, "/trainer/v1/batches/lease", done))[0] == 204
    assert world.sql("SELECT number, state, payload IS NULL FROM trajectory_batch ORDER BY number") == [
        (1, "forgotten", True), (2, "applied", False),
    ]  # fmt: skip
    assert world.sql("SELECT state, batch_number FROM trajectory_group ORDER BY index") == [
        ("batched", 1), ("batched", 2),
    ]  # fmt: skip


async def test_batch_behind_one_in_hand_is_the_one_given_after_it(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    agent, trainer = world.make_phase(Role.AGENT), world.make_phase(Role.TRAIN)
    await make_ready(world, agent, num_groups=2)
    await world.phase_post(trainer, "/trainer/v1/batches/lease", BATCH)
    behind = BATCH | {"num_held": 1, "policy_version": 1}
    ahead = await world.phase_post(trainer, "/trainer/v1/batches/lease", behind)
    assert ahead[0] == 200
    assert world.sql("SELECT number, state FROM trajectory_batch ORDER BY number") == [
        (1, "leased"), (2, "leased"),
    ]  # fmt: skip
    next_one = BATCH | {"applied_batch": 1, "policy_version": 1}
    assert await world.phase_post(trainer, "/trainer/v1/batches/lease", next_one) == ahead


async def test_groups_in_a_batch_not_yet_published_count_for_the_staleness_bound(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(
        lambda prompt: "yes<|im_end|>", algorithm={"max_staleness": 0}, train={"num_updates": 5}
    )
    agent, trainer = world.make_phase(Role.AGENT), world.make_phase(Role.TRAIN)
    await make_ready(world, agent, num_groups=1)
    assert await world.lease(agent) == []
    assert (await world.phase_post(trainer, "/trainer/v1/batches/lease", BATCH))[0] == 200
    assert await world.lease(agent) == []
    world.sql("UPDATE jobs_job SET published_batch = 1 RETURNING id")
    assert len(await world.lease(agent)) == 1


async def test_groups_beyond_the_staleness_bound_are_dropped_with_a_reason(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", algorithm={"max_staleness": 1})
    await make_ready(world, world.make_phase(Role.AGENT), num_groups=1)
    trainer = world.make_phase(Role.TRAIN)
    assert (await world.phase_post(trainer, "/trainer/v1/batches/lease", BATCH | {"policy_version": 2}))[
        0
    ] == 204
    assert world.sql("SELECT state, reason FROM trajectory_group") == [
        (
            "dropped",
            (
                "its oldest token was sampled by version 0, but the oldest version that may train now is 1 "
                "(sessions within the bound: 0, needed: 2)"
            ),
        )
    ]


async def test_of_a_group_with_one_session_beyond_the_bound_the_others_are_trained(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(
        lambda prompt: "yes<|im_end|>", algorithm={"max_staleness": 1}, rollout={"group_size": 3}
    )
    agent = world.make_phase(Role.AGENT)
    (group,) = await world.lease(agent, max_sessions=3)
    for reward, session in enumerate(group["sessions"]):
        await world.chat(session["api_key"], [USER])
        for engine in world.engines:
            engine.version = 1
        await world.finish(agent, session["session_id"], reward=reward)

    trainer = world.make_phase(Role.TRAIN)
    status, raw = await world.phase_post(trainer, "/trainer/v1/batches/lease", BATCH | {"policy_version": 2})

    assert status == 200
    batch = batch_decode(raw)
    assert sorted(batch.rewards.tolist()) == [1.0, 2.0]
    assert batch.header.reward_mean == 1.0, "the outcome of the one left out still counts"
    assert set(batch.versions[batch.loss_mask != 0].tolist()) == {1}


async def test_sessions_whose_runner_never_got_them_are_told_again(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", algorithm={"max_staleness": 1})
    agent = world.make_phase(Role.AGENT)
    (kept,) = await world.lease(agent, max_sessions=2)
    (lost,) = await world.lease(agent, max_sessions=2)  # the answer was lost
    held = [session["session_id"] for session in kept["sessions"]]

    assert not await leased_again(world, agent, None), "a runner that says nothing of them has them"
    assert await leased_again(world, agent, held) == [lost], "with the same keys"
    assert await leased_again(world, agent, held) == [lost], "as often as the answer is lost"

    for group in (kept, lost):
        for reward, session in enumerate(group["sessions"]):
            await world.chat(session["api_key"], [USER])
            await world.finish(agent, session["session_id"], reward=reward)
    states = world.sql("SELECT state, num_rewarded FROM trajectory_group WHERE id = ANY(%s)",
                       [[kept["group_id"], lost["group_id"]]])  # fmt: skip
    assert states == [("ready", 2)] * 2
    assert world.sql("SELECT count(*) FROM trajectory_session WHERE state = 'failed' OR attempt > 1") == [
        (0,)
    ]


async def test_no_more_sessions_are_told_again_than_there_is_room_for(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", algorithm={"max_staleness": 0})
    agent = world.make_phase(Role.AGENT)
    (lost,) = await world.lease(agent, max_sessions=2)
    world.sql("UPDATE trajectory_session SET opened_at = opened_at - interval '1 minute'")

    assert not await leased_again(world, agent, [], room=0)
    (first,) = await leased_again(world, agent, [], room=1)
    (second,) = await leased_again(world, agent, [first["sessions"][0]["session_id"]], room=1)

    assert [*first["sessions"], *second["sessions"]] == lost["sessions"]


async def test_sessions_that_their_runner_gave_up_run_anew(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", algorithm={"max_staleness": 0})
    agent = world.make_phase(Role.AGENT)
    (group,) = await world.lease(agent, max_sessions=2)
    for session in group["sessions"]:
        await world.chat(session["api_key"], [USER])
    assert not await leased_again(world, agent, []), "the runner may have got them after it asked"
    world.sql("UPDATE trajectory_session SET opened_at = opened_at - interval '1 minute'")

    (again,) = await leased_again(world, agent, [])

    assert [(session["slot"], session["attempt"]) for session in again["sessions"]] == [(0, 2), (1, 2)]
    assert (
        world.sql("SELECT state, is_requeued FROM trajectory_session WHERE attempt = 1")
        == [("failed", True)] * 2
    )


async def leased_again(
    world: GatewayWorld, agent: Any, held: list[str] | None, *, room: int = 2
) -> list[Any]:
    """Lease up to `room` sessions and return the groups that had begun before."""
    known = {str(row[0]) for row in world.sql("SELECT id FROM trajectory_group")}
    body = {"max_sessions": room, "wait_s": 0.0, "held": held}
    _, raw = await world.phase_post(agent, "/runner/v1/groups/lease", body)
    return [group for group in json.loads(raw)["groups"] if group["group_id"] in known]
