"""How many groups begin follows from the rows of the last batches, and from nothing that a restart forgets."""

import math
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

STEP_S = 10.0
GROUPS_PER_BATCH = 2
AS_NEEDED = {"groups_per_batch": GROUPS_PER_BATCH, "run_ahead": "as_needed"}
NUM_PUBLISHED = 12


async def job_with_history(
    world: GatewayWorld, *, sojourn_s: float, wait_s: float = 0.0, num_published: int = NUM_PUBLISHED
) -> None:
    """Start a job whose last batches took a step of 10 s each, after the trainer had waited for them."""
    await world.start_engines(
        lambda prompt: "yes<|im_end|>", num_engines=0, num_tasks=40, rollout=AS_NEEDED, algorithm={"max_staleness": 3},
        train={"num_updates": 50},
    )  # fmt: skip
    await world.start_engine(lambda prompt: "yes<|im_end|>", version=num_published)
    began_at = datetime.now(UTC) - timedelta(seconds=(num_published + 1) * (STEP_S + wait_s))
    for number in range(num_published + 1):
        published_at = began_at + timedelta(seconds=number * (STEP_S + wait_s))
        world.insert(
            "policies_policyversion", id=uuid4(), project_id=world.project_id, job_id=world.job_id, version=number,
            parent_version=number - 1 if number else None, optimizer_step=number, batch_number=number or None,
            uri="", manifest_sha256="", num_bytes=1, checkpoint_uri="", train_fence=1, is_pinned=False,
            published_at=published_at,
        )  # fmt: skip
        if number:
            batch_insert(world, number, created_at=published_at - timedelta(seconds=STEP_S))
            num_steps = math.ceil(sojourn_s / (STEP_S + wait_s))
            admitted_at = published_at - timedelta(seconds=(num_steps + 1) * (STEP_S + wait_s))
            groups_insert(world, number, admitted_at=admitted_at, sojourn_s=sojourn_s)
    world.sql(
        "UPDATE jobs_job SET latest_version = %s, published_batch = %s WHERE id = %s",
        [num_published, num_published, world.job_id],
    )


def batch_insert(world: GatewayWorld, number: int, *, created_at: datetime) -> None:
    world.insert(
        "trajectory_batch", id=uuid4(), project_id=world.project_id, job_id=world.job_id, number=number,
        state="applied", payload_sha256="", policy_version=number, num_groups=GROUPS_PER_BATCH, num_samples=1,
        num_tokens=1, num_trained_tokens=1, lease_phase_id=uuid4(), lease_fence=1, lease_expires_at=created_at,
        created_at=created_at,
    )  # fmt: skip


def groups_insert(world: GatewayWorld, number: int, *, admitted_at: datetime, sojourn_s: float) -> None:
    ready_at = admitted_at + timedelta(seconds=sojourn_s)
    for index in range(GROUPS_PER_BATCH):
        world.insert(
            "trajectory_group", id=uuid4(), project_id=world.project_id, job_id=world.job_id,
            index=(number - 1) * GROUPS_PER_BATCH + index, external_key="", task_index=0, task="{}", size=2,
            state="batched", reason="", num_rewarded=2, batch_number=number,
            created_at=admitted_at, ready_at=ready_at, finalized_at=ready_at,
        )  # fmt: skip


async def num_leased(world: GatewayWorld) -> int:
    return len(await world.lease(world.make_phase(Role.AGENT), max_sessions=64))


@pytest.mark.parametrize(
    "sojourn_s, wait_s, num_groups",
    [
        pytest.param(8.0, 0.0, 4, id="ready within one step"),
        pytest.param(18.0, 0.0, 6, id="ready within two steps"),
        pytest.param(100.0, 0.0, 8, id="longer than the bound has steps"),
        pytest.param(2.0, 10.0, 8, id="the trainer waits half of the time"),
    ],
)
async def test_groups_begin_as_far_ahead_as_the_trainer_needs(
    gateway_world: GatewayWorld, sojourn_s: float, wait_s: float, num_groups: int
) -> None:
    await job_with_history(gateway_world, sojourn_s=sojourn_s, wait_s=wait_s)
    assert await num_leased(gateway_world) == num_groups


async def test_a_new_job_begins_with_one_batch_and_one_ahead(gateway_world: GatewayWorld) -> None:
    await job_with_history(gateway_world, sojourn_s=8.0, num_published=0)
    assert await num_leased(gateway_world) == 2 * GROUPS_PER_BATCH


async def test_a_restart_begins_nothing_that_is_not_needed(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await job_with_history(world, sojourn_s=8.0)
    agent = world.make_phase(Role.AGENT)
    assert len(await world.lease(agent, max_sessions=64)) == 2 * GROUPS_PER_BATCH
    world.kill_gateway()
    await world.start_gateway()
    assert await world.lease(agent, max_sessions=64) == []


async def test_groups_that_are_late_are_replaced_up_to_the_bound(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await job_with_history(world, sojourn_s=8.0)
    agent = world.make_phase(Role.AGENT)
    assert len(await world.lease(agent, max_sessions=64)) == 4
    world.sql(
        "UPDATE trajectory_group SET created_at = created_at - interval '1 hour' WHERE index IN (24, 25, 26)"
    )
    assert len(await world.lease(agent, max_sessions=64)) == 3
    world.sql("UPDATE trajectory_group SET created_at = created_at - interval '1 hour' WHERE state = 'open'")
    assert len(await world.lease(agent, max_sessions=64)) == 1  # eight are the bound


async def test_a_version_that_no_engine_serves_yet_delays_one_batch_and_no_more(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await job_with_history(world, sojourn_s=8.0)
    for behind, num_groups in ((1, 2), (2, 2)):
        world.set_served_version(NUM_PUBLISHED - behind)
        assert await num_leased(world) == num_groups
        world.sql("DELETE FROM trajectory_session")
        world.sql("DELETE FROM trajectory_group WHERE state = 'open'")
