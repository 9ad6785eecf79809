"""Engines that lag behind, for example because they hear of no update, delay neither groups nor turns."""

from uuid import uuid4

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

USER = {"role": "user", "content": "?"}


def script(prompt: str) -> str:
    return "yes<|im_end|>"


def publish(world: GatewayWorld, *, num_versions: int) -> None:
    """Write versions as the trainer and the control plane do, each with its batch of one group."""
    for number in range(num_versions + 1):
        world.insert(
            "policies_policyversion", id=uuid4(), project_id=world.project_id, job_id=world.job_id, version=number,
            parent_version=number - 1 if number else None, optimizer_step=number, batch_number=number or None,
            uri="", manifest_sha256="", num_bytes=1, checkpoint_uri="", train_fence=1, is_pinned=False,
            published_at="2026-01-01",
        )  # fmt: skip
    for number in range(1, num_versions + 1):
        world.insert(
            "trajectory_batch", id=uuid4(), project_id=world.project_id, job_id=world.job_id, number=number,
            state="applied", payload_sha256="", policy_version=number, num_groups=1, num_samples=1, num_tokens=1,
            num_trained_tokens=1, lease_phase_id=uuid4(), lease_fence=1, lease_expires_at="2026-01-01",
            created_at="2026-01-01",
        )  # fmt: skip
    world.sql(
        "UPDATE jobs_job SET latest_version = %s, published_batch = %s WHERE id = %s",
        [num_versions, num_versions, world.job_id],
    )
    world.sql("SELECT pg_notify('sf_engines', %s)", [str(world.job_id)])


async def test_an_engine_beyond_the_staleness_bound_holds_nobody_up(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    (left_behind,) = await world.start_engines(
        script, algorithm={"max_staleness": 1}, train={"num_updates": 20}
    )
    current = await world.start_engine(script, version=3)
    publish(world, num_versions=3)

    groups = await world.lease(world.make_phase(Role.AGENT), max_sessions=4)
    assert len(groups) == 2  # as many as the bound allows while the up-to-date engine samples
    for group in groups:
        for session in group["sessions"]:
            await world.chat(session["api_key"], [USER])

    assert (left_behind.num_requests, current.num_requests) == (0, 4)


async def test_an_engine_within_the_bound_is_waited_for_and_used(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    (behind,) = await world.start_engines(script, algorithm={"max_staleness": 3}, train={"num_updates": 20})
    publish(world, num_versions=3)

    groups = await world.lease(world.make_phase(Role.AGENT), max_sessions=8)
    assert len(groups) == 1  # the fourth after the one whose version the engine serves
    await world.chat(groups[0]["sessions"][0]["api_key"], [USER])

    assert behind.num_requests == 1
