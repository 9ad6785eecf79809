"""Who may report a session's outcome, and reports that are repeated or late: a recorded outcome never changes."""

import json
from typing import Any
from uuid import UUID

from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

USER = {"role": "user", "content": "?"}
EVENTS = (
    "SELECT subject_type, subject_id::text, author FROM common_event WHERE kind = 'session.outcome_refused'"
)


async def external_session(world: GatewayWorld, **job: Any) -> tuple[str, str]:
    """Return the path and key of an external session with one turn."""
    await world.start_engines(lambda prompt: "yes<|im_end|>", environment="external", **job)
    world.make_token()
    return await another_session(world)


async def another_session(world: GatewayWorld) -> tuple[str, str]:
    body = {"job": show_id(IdKind.JOB, world.job_id), "group": "task 1"}
    status, raw = await world.post("/v1/sessions", body, world.api_token)
    assert status == 201, raw
    opened = world.decode(raw)
    await world.chat(opened["api_key"], [USER])
    return f"/v1/sessions/{opened['session']}", opened["api_key"]


def rewards(world: GatewayWorld) -> list[tuple[Any, ...]]:
    return world.sql("SELECT state, reward FROM trajectory_session ORDER BY slot, attempt")


async def test_agent_run_by_the_platform_cannot_grade_or_close_itself(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    world.make_token()
    agent = world.make_phase(Role.AGENT)
    (group,) = await world.lease(agent, max_sessions=2)
    session, sibling = group["sessions"]
    await world.chat(session["api_key"], [USER])
    path = f"/v1/sessions/{show_id(IdKind.SESSION, UUID(session['session_id']))}"
    for token in (session["api_key"], world.api_token):
        assert (await world.post(path + "/reward", {"reward": 777.0}, token))[0] == 403
        assert (await world.post(path + "/close", {}, token))[0] == 403
    await world.finish(agent, session["session_id"], reward=0.0)
    await world.finish(agent, sibling["session_id"], reward=1.0)

    assert rewards(world) == [("closed", 0.0), ("closed", 1.0)]
    assert world.sql("SELECT state, reward_mean FROM trajectory_group") == [("ready", 0.5)]


async def test_key_of_an_external_session_opens_the_policy_and_nothing_else(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    path, key = await external_session(world)
    for verb, body in (("reward", {"reward": 777.0}), ("close", {})):
        status, raw = await world.post(f"{path}/{verb}", body, key)
        assert status == 403
        problem = json.loads(raw)
        assert (problem["status"], problem["title"]) == (403, "Forbidden")
        assert "API token" in problem["detail"]
        assert "environment.reward_by" in problem["detail"]
    assert rewards(world) == [("open", None)]
    await world.chat(key, [USER])

    assert (await world.post(path + "/reward", {"reward": 0.0}, world.api_token))[0] == 204
    assert (await world.post(path + "/reward", {"reward": 0.5}, world.api_token))[0] == 204  # not closed yet
    assert (await world.post(path + "/close", {}, world.api_token))[0] == 204
    assert rewards(world) == [("closed", 0.5)]


async def test_outcome_of_a_closed_session_never_changes(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    path, _ = await external_session(world)
    for _ in range(3):
        assert (await world.post(path + "/reward", {"reward": 0.25}, world.api_token))[0] == 204
        assert (await world.post(path + "/close", {}, world.api_token))[0] == 204
    for _ in range(3):
        status, raw = await world.post(path + "/reward", {"reward": 5.0}, world.api_token)
        assert status == 409
        assert "0.25" in json.loads(raw)["error"]["message"]
    session = world.sql("SELECT id::text FROM trajectory_session")[0][0]
    assert rewards(world) == [("closed", 0.25)]
    assert world.sql(EVENTS) == [("session", session, "gateway")], "told once, however often it is tried"

    other, _ = await another_session(world)
    assert (await world.post(other + "/reward", {"reward": 1.0}, world.api_token))[0] == 204
    assert (await world.post(other + "/close", {}, world.api_token))[0] == 204
    assert world.sql("SELECT state, external_key, reward_mean FROM trajectory_group") == [
        ("ready", "task 1", 0.625)
    ]


async def test_outcome_that_differs_from_that_of_a_closed_session_leaves_an_event(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    path, _ = await external_session(world)
    assert (await world.post(path + "/reward", {"reward": 0.25}, world.api_token))[0] == 204
    assert (await world.post(path + "/close", {}, world.api_token))[0] == 204
    assert (await world.post(path + "/reward", {"reward": 5.0}, world.api_token))[0] == 409

    session = world.sql("SELECT id::text FROM trajectory_session")[0][0]
    assert world.sql(EVENTS) == [("session", session, "gateway")]


async def test_reward_that_comes_after_its_session_failed_changes_nothing(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    path, _ = await external_session(world)
    assert (await world.post(path + "/close", {}, world.api_token))[0] == 204
    before = world.sql("SELECT s.* FROM trajectory_session s"), world.sql("SELECT count(*) FROM common_event")
    for _ in range(3):
        assert (await world.post(path + "/reward", {"reward": 5.0}, world.api_token))[0] < 300
    assert before == (
        world.sql("SELECT s.* FROM trajectory_session s"),
        world.sql("SELECT count(*) FROM common_event"),
    )
    _, raw = await world.post(path + "/reward", {"reward": 5.0}, world.api_token)
    assert json.loads(raw) == {
        "session": path.removeprefix("/v1/sessions/"),
        "state": "failed",
        "reason": "closed without a reward",
        "is_stored": False,
    }


async def test_runner_that_reports_another_outcome_is_refused(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    agent = world.make_phase(Role.AGENT)
    (group,) = await world.lease(agent, max_sessions=2)
    graded, broken = (session["session_id"] for session in group["sessions"])
    await world.finish(agent, graded, reward=1.0)
    await world.finish(agent, broken, failure="it broke")
    again = [{"session_id": graded, "reward": 1.0}, {"session_id": broken, "reward": 1.0}]
    status, raw = await world.phase_post(agent, "/runner/v1/sessions/ended", {"finishes": again})
    assert (status, json.loads(raw)["refused"]) == (200, {})
    assert world.sql(EVENTS) == []

    for other in ({"reward": 5.0}, {"failure": "it broke after all"}):
        finishes = [{"session_id": graded, **other}]
        status, raw = await world.phase_post(agent, "/runner/v1/sessions/ended", {"finishes": finishes})
        assert (status, list(json.loads(raw)["refused"])) == (200, [graded])
    assert world.sql(EVENTS) == [("session", graded, "gateway")]
    assert rewards(world) == [("closed", 1.0), ("failed", None)]


async def test_job_may_let_external_agents_grade_themselves(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    path, key = await external_session(world, environment_fields={"reward_by": "session"})
    assert (await world.post(path + "/reward", {"reward": 0.5}, key))[0] == 204
    assert (await world.post(path + "/close", {}, key))[0] == 204
    assert (await world.post(path + "/reward", {"reward": 0.5}, key))[0] == 204
    assert (await world.post(path + "/reward", {"reward": 1.0}, key))[0] == 409
    assert rewards(world) == [("closed", 0.5)]
