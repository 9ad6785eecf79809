"""Which groups train and which tasks run: dynamic sampling, history resampling, stages, waiting for stale groups."""

import json
from typing import Any

from seamlessflow.core.batching.format import batch_decode
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

USER = {"role": "user", "content": "?"}
BATCH: dict[str, Any] = {"applied_batch": 0, "durable_batch": 0, "policy_version": 0, "wait_s": 0.0}
ROOM = {"max_staleness": 50}


def answer(prompt: str) -> str:
    return "yes<|im_end|>"


async def run_group(world: GatewayWorld, agent: PhaseClaims, rewards: tuple[float, float]) -> int:
    """Lease one group, finish it and return the index of its task."""
    (group,) = await world.lease(agent, max_sessions=2)
    for reward, session in zip(rewards, group["sessions"], strict=True):
        await world.chat(session["api_key"], [USER])
        await world.finish(agent, session["session_id"], reward=reward)
    return int(group["task"]["question"])


async def lease_batch(world: GatewayWorld, trainer: PhaseClaims, **request: Any) -> tuple[int, bytes]:
    return await world.phase_post(trainer, "/trainer/v1/batches/lease", BATCH | request)


async def test_groups_without_contrast_are_replaced_and_counted_as_waste(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(answer, algorithm={"name": "dapo", **ROOM})
    agent, trainer = world.make_phase(Role.AGENT), world.make_phase(Role.TRAIN)
    for rewards in ((1.0, 1.0), (0.0, 0.0), (0.0, 1.0)):
        await run_group(world, agent, rewards)
    status, raw = await lease_batch(world, trainer)
    assert status == 200
    metrics = batch_decode(raw).header.metrics
    assert metrics["rollout/num_replaced_groups"] == 2
    assert metrics["rollout/replaced_reward_mean"] == 0.5
    assert metrics["rollout/zero_variance_fraction"] == 0
    tokens = world.sql("SELECT sum(num_sampled_tokens) FROM trajectory_session")[0][0]
    assert metrics["rollout/num_wasted_tokens"] * 3 == tokens * 2
    assert world.sql("SELECT state, drop_cause, replaced_for FROM trajectory_group ORDER BY index") == [
        ("dropped", "no_contrast", 1), ("dropped", "no_contrast", 1), ("batched", "", None),
    ]  # fmt: skip
    assert world.sql("SELECT reason FROM trajectory_group WHERE index = 0") == [
        ("every session has the reward 1; another group replaces it",)
    ]


async def test_a_solved_task_set_cannot_stall_the_job(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    sampling = {"dynamic": True, "dynamic_limit": 2}
    await world.start_engines(answer, algorithm={"name": "dapo", "sampling": sampling, **ROOM})
    agent, trainer = world.make_phase(Role.AGENT), world.make_phase(Role.TRAIN)
    for _ in range(3):
        await run_group(world, agent, (1.0, 1.0))
    assert world.sql("SELECT state FROM trajectory_group ORDER BY index") == [
        ("dropped",), ("dropped",), ("ready",),
    ]  # fmt: skip
    assert (await lease_batch(world, trainer))[0] == 200


async def test_tasks_that_were_all_correct_leave_the_next_epoch_also_after_a_restart(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(
        answer, num_tasks=3, algorithm={"name": "srpo", **ROOM}, train={"num_updates": 50}
    )
    agent = world.make_phase(Role.AGENT)
    rewards = {0: (1.0, 1.0), 1: (0.0, 0.0), 2: (0.0, 1.0)}
    first = []
    for _ in range(3):
        task = world.sql("SELECT count(*) FROM trajectory_group")[0][0]
        (group,) = await world.lease(agent, max_sessions=2)
        task = int(group["task"]["question"])
        first.append(task)
        for reward, session in zip(rewards[task], group["sessions"], strict=True):
            await world.chat(session["api_key"], [USER])
            await world.finish(agent, session["session_id"], reward=reward)
    assert sorted(first) == [0, 1, 2]
    second = [await run_group(world, agent, (0.0, 1.0))]
    world.kill_gateway()
    await world.start_gateway()
    second.append(await run_group(world, agent, (0.0, 1.0)))
    assert sorted(second) == [1, 2]
    assert world.sql(
        "SELECT number, first_index, num_tasks, reason FROM trajectory_epoch ORDER BY number"
    ) == [
        (0, 0, 3, "3 of 3 tasks; 0 were all correct"),
        (1, 3, 2, "2 of 3 tasks; 1 were all correct"),
    ]


STAGES = [
    {"name": "arithmetic", "domains": ["math"], "until_metric": "reward/mean", "at_least": 0.5, "window": 1},
    {"name": "both"},
]


def with_domains(world: GatewayWorld) -> None:
    lines = [{"question": n, "domain": "math" if n < 2 else "code"} for n in range(4)]
    (world.folder / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


async def staged(world: GatewayWorld) -> PhaseClaims:
    await world.start_engines(
        answer,
        num_tasks=4,
        algorithm={"name": "grpo", "stages": STAGES, **ROOM},
        train={"num_updates": 50},
    )
    with_domains(world)
    return world.make_phase(Role.AGENT)


async def test_a_stage_gives_its_domains_and_ends_by_its_metric(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    agent = await staged(world)
    assert sorted([await run_group(world, agent, (0.0, 1.0)) for _ in range(2)]) == [0, 1]
    assert await run_group(world, agent, (0.0, 1.0)) in (0, 1)
    world.insert(
        "telemetry_metricpoint", project_id=world.project_id, job_id=world.job_id, name="reward/mean", step=1,
        value=0.75, at="2999-01-01",
    )  # fmt: skip
    assert sorted([await run_group(world, agent, (0.0, 1.0)) for _ in range(4)]) == [0, 1, 2, 3]
    events = world.sql("SELECT reason, author, data FROM common_event WHERE kind = 'job.stage'")
    assert events == [
        (
            "reward/mean is 0.75 over 1 updates, 0.5 was asked for",
            "gateway",
            {"from": "arithmetic", "to": "both"},
        )
    ]


async def test_a_stage_switched_by_hand_begins_with_the_next_group(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    agent = await staged(world)
    assert await run_group(world, agent, (0.0, 1.0)) in (0, 1)
    world.sql("UPDATE jobs_job SET stage_requested = 1, stage_request = 1 WHERE id = %s", [world.job_id])
    assert sorted([await run_group(world, agent, (0.0, 1.0)) for _ in range(4)]) == [0, 1, 2, 3]
    world.sql("UPDATE jobs_job SET stage_requested = 0, stage_request = 2 WHERE id = %s", [world.job_id])
    assert sorted([await run_group(world, agent, (0.0, 1.0)) for _ in range(2)]) == [0, 1]
    assert world.sql("SELECT stage, stage_request FROM trajectory_epoch ORDER BY number") == [
        (0, 0), (1, 1), (0, 2),
    ]  # fmt: skip


async def test_a_stage_without_tasks_is_refused_by_name(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(answer, algorithm={"stages": [{"name": "a", "domains": ["none"]}]})
    agent = world.make_phase(Role.AGENT)
    body = {"max_sessions": 2, "wait_s": 0.0}
    status, raw = await world.phase_post(agent, "/runner/v1/groups/lease", body)
    assert status == 400
    assert b"No task has one of the domains of stage 'a': none" in raw


async def test_updates_wait_for_groups_that_the_next_version_would_make_stale(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(answer, algorithm={"max_staleness": 1, "off_policy": {"stale_groups": "wait"}})
    agent, trainer = world.make_phase(Role.AGENT), world.make_phase(Role.TRAIN)
    groups = await world.lease(agent, max_sessions=4)
    assert len(groups) == 2
    slow, quick = groups
    await world.chat(slow["sessions"][0]["api_key"], [USER])
    for reward, session in enumerate(quick["sessions"]):
        await world.chat(session["api_key"], [USER])
        await world.finish(agent, session["session_id"], reward=reward)
    assert (await lease_batch(world, trainer, policy_version=1))[0] == 204
    for reward, session in enumerate(slow["sessions"]):
        await world.chat(session["api_key"], [USER, {"role": "user", "content": "again"}])
        await world.finish(agent, session["session_id"], reward=reward)
    assert (await lease_batch(world, trainer, policy_version=1))[0] == 200


async def test_history_resampling_on_policy_beside_evaluations(gateway_world: GatewayWorld) -> None:
    """With staleness 0 one batch is made at a time. Evaluated groups are no history, although they name tasks."""
    world = gateway_world
    held_out = {"tasks": "held_out", "every_versions": 1, "samples_per_task": 2}
    await world.start_engines(
        answer,
        num_tasks=2,
        algorithm={"name": "srpo", "max_staleness": 0},
        evaluation=held_out,
        train={"num_updates": 50},
    )
    agent, trainer = world.make_phase(Role.AGENT), world.make_phase(Role.TRAIN)
    rewards = {0: (1.0, 1.0), 1: (0.0, 1.0)}
    trained = []
    for version in range(5):
        for group in await world.lease(agent, is_evaluation=True):
            for session in group["sessions"]:
                await world.chat(session["api_key"], [USER])
                await world.finish(agent, session["session_id"], reward=1.0)  # all correct, for every task
        (group,) = await world.lease(agent, max_sessions=10)
        trained.append(int(group["task"]["question"]))
        for reward, session in zip(rewards[trained[-1]], group["sessions"], strict=True):
            await world.chat(session["api_key"], [USER])
            await world.finish(agent, session["session_id"], reward=reward)
        assert await world.lease(agent, max_sessions=10) == [], "nothing that could not be trained on policy"
        numbers = {"applied_batch": version, "durable_batch": version, "policy_version": version}
        status, raw = await lease_batch(world, trainer, **numbers)
        assert status == 200
        batch = batch_decode(raw)
        assert set(batch.versions[batch.loss_mask != 0].tolist()) == {version}
        world.sql("UPDATE jobs_job SET latest_version = %s, published_batch = %s", [version + 1] * 2)
        world.set_served_version(version + 1)
        world.engines[0].version = version + 1

    assert sorted(trained[:2]) == [0, 1]
    assert trained[2:] == [1, 1, 1], "the task that was solved has left; the measured ones never count"
    assert world.sql("SELECT count(*) FROM trajectory_evaluation WHERE state = 'finished'") == [(5,)]
