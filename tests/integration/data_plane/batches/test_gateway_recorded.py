"""Batches from another job's sessions: exactly its tokens, each session once per epoch, the same after a restart."""

from itertools import chain
from typing import Any
from uuid import UUID, uuid4

import numpy as np

from seamlessflow.core.batching.format import Batch, batch_decode
from seamlessflow.core.dataset.epochs import DatasetEpochs
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.trajectory.flatten import PROMPT_VERSION
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.turns.rendering.model_text import model_text_load
from tests.fixtures.gateway_world import GatewayWorld

NUM_GROUPS = 5
GROUPS_PER_BATCH = 2
NUM_EPOCHS = 2
SEED = 11
PLAN = DatasetEpochs(NUM_GROUPS, GROUPS_PER_BATCH, NUM_EPOCHS, SEED)


async def record(world: GatewayWorld) -> list[UUID]:
    """Record groups of two sessions with two turns each, rewards 0 and 1 and different answers; return their ids."""
    await world.start_engines(
        lambda prompt: f"{len(prompt)} tokens<|im_end|>",
        algorithm={"max_staleness": 4},
        train={"num_updates": 50},
        num_tasks=NUM_GROUPS,
    )
    agent = world.make_phase(Role.AGENT)
    for number in range(NUM_GROUPS):
        (group,) = await world.lease(agent, max_sessions=2)
        for reward, session in enumerate(group["sessions"]):
            asked: list[Any] = [{"role": "user", "content": f"{number} + {number}?"}]
            for turn in range(2):
                answer = await world.chat(session["api_key"], asked)
                asked += [answer["choices"][0]["message"], {"role": "user", "content": f"again {turn}"}]
            await world.finish(agent, session["session_id"], reward=reward)
    return [row[0] for row in world.sql("SELECT id FROM trajectory_group ORDER BY index")]


def imitate(world: GatewayWorld, groups: list[UUID], **train: Any) -> PhaseClaims:
    """Add a second job that trains on the sessions with reward 1, with its train phase, as the world's job."""
    body = {
        "name": "imitation",
        "model": {"source": "model", "max_model_len": 512},
        "data": {
            "source": "trajectories",
            "jobs": ["tiny"],
            "groups_per_batch": GROUPS_PER_BATCH,
            "num_epochs": NUM_EPOCHS,
        },
        "algorithm": {"name": "sft"},
        "train": train,
        "seed": SEED,
    }
    spec = JobSpec.model_validate(body).model_dump(mode="json")
    world.job_id = uuid4()
    world.insert(
        "jobs_job", id=world.job_id, project_id=world.project_id, name="imitation", state="running", state_reason="",
        waiting_reason="", desired="run", generation=1, spec_submitted=spec, spec=spec,
        dataset={"num_groups": NUM_GROUPS},
        model_path=str(world.folder / "model"), tasks_path="", evaluation_tasks_path="", train_fence=0,
        latest_version=0, published_batch=0, num_failures=0, created_at="2026-01-01",
    )  # fmt: skip
    for position, group in enumerate(groups):
        world.sql(
            """INSERT INTO trajectory_dataset (project_id, job_id, position, group_id, session_ids)
               SELECT %s, %s, %s, %s, array_agg(id) FROM trajectory_session WHERE group_id = %s AND reward = 1""",
            [world.project_id, world.job_id, position, group, group],
        )
    return world.make_phase(Role.TRAIN)


async def lease(world: GatewayWorld, trainer: PhaseClaims, number: int, *, durable: int = 0) -> bytes | None:
    body = {
        "applied_batch": number - 1,
        "durable_batch": durable,
        "policy_version": number - 1,
        "wait_s": 0.0,
    }
    status, raw = await world.phase_post(trainer, "/trainer/v1/batches/lease", body)
    assert status in (200, 204), raw
    return raw if status == 200 else None


async def leased(world: GatewayWorld, trainer: PhaseClaims, number: int) -> bytes:
    raw = await lease(world, trainer, number)
    assert raw is not None
    return raw


def tokens_by_group(world: GatewayWorld, batch: Batch) -> list[tuple[str, list[str]]]:
    """Return the text of each tree of a batch, and its trained pieces."""
    text = model_text_load(str(world.folder / "model"))
    found = []
    starts = batch.sample_starts
    for sample in range(batch.num_samples):
        span = slice(int(starts[sample]), int(starts[sample + 1]))
        ids, mask = batch.token_ids[span], batch.loss_mask[span]
        pieces = np.split(ids, np.flatnonzero(np.diff(mask)) + 1)
        trained = [text.tokenizer.decode(piece.tolist(), skip_special_tokens=False) for piece in pieces]
        found.append(("".join(trained), trained[1::2]))
    return found


async def test_batches_hold_the_recorded_tokens_of_chosen_sessions_once_an_epoch(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    groups = await record(world)
    recorded = world.sql("SELECT id, state, batch_number FROM trajectory_group ORDER BY index")
    trainer = imitate(world, groups)
    batches = [batch_decode(await leased(world, trainer, n)) for n in range(1, PLAN.num_batches + 1)]

    assert await lease(world, trainer, PLAN.num_batches + 1) is None
    for number, batch in enumerate(batches, start=1):
        expected = PLAN.batch(number)
        assert expected is not None
        texts = tokens_by_group(world, batch)
        asked = [f"{place} + {place}?" for place in expected.positions]
        assert all(question in whole for question, (whole, _) in zip(asked, texts, strict=True))
        for whole, trained in texts:
            assert len(trained) == 2  # both whole answers and nothing else
            assert all(piece.endswith(" tokens<|im_end|>") for piece in trained)
            assert "again 0" in whole
        assert (batch.header.number, batch.header.temperature) == (number, 1.0)
        assert batch.header.metrics["train/epoch"] == expected.epochs_done
        assert set(batch.versions.tolist()) == {PROMPT_VERSION}
        assert set(batch.rewards.tolist()) == {1.0}
        trained_tokens = batch.loss_mask != 0
        assert set(batch.advantages_positive[trained_tokens].tolist()) == {1.0}
        assert not batch.advantages_negative.any()
    by_epoch = [batches[: PLAN.batches_per_epoch], batches[PLAN.batches_per_epoch :]]
    seen = [
        sorted(whole for batch in epoch for whole, _ in tokens_by_group(world, batch)) for epoch in by_epoch
    ]
    assert len(set(seen[0])) == NUM_GROUPS
    assert seen[0] == seen[1]
    assert world.sql("SELECT id, state, batch_number FROM trajectory_group ORDER BY index") == recorded


async def test_any_batch_is_the_same_after_the_gateway_died_and_was_forgotten(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    trainer = imitate(world, await record(world))
    before = [await leased(world, trainer, number) for number in range(1, PLAN.num_batches + 1)]
    world.kill_gateway()
    world.sql("DELETE FROM trajectory_batch WHERE number > 1 AND job_id = %s", [world.job_id])
    await world.start_gateway()

    after = [await leased(world, trainer, number) for number in range(1, PLAN.num_batches + 1)]

    assert before == after


async def test_a_trainer_that_goes_on_from_its_checkpoint_gets_the_following_batch(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    trainer = imitate(world, await record(world))
    first = [await leased(world, trainer, number) for number in (1, 2, 3)]
    assert await lease(world, trainer, 3, durable=2) == first[2]
    world.end_phase(trainer, "failed")
    again = world.make_phase(Role.TRAIN)
    assert await lease(world, again, 3, durable=2) == first[2]
    states = world.sql(
        "SELECT number, state FROM trajectory_batch WHERE job_id = %s ORDER BY number", [world.job_id]
    )
    assert states == [(1, "forgotten"), (2, "forgotten"), (3, "leased")]
    fourth = batch_decode(await leased(world, again, 4))
    assert fourth.header.metrics["train/epoch"] > 1


async def test_recorded_groups_that_are_gone_are_named_as_the_reason(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    groups = await record(world)
    trainer = imitate(world, groups)
    world.sql("DELETE FROM trajectory_dataset WHERE position = 0")
    body = {"durable_batch": 0, "wait_s": 0.0}
    answers = [
        await world.phase_post(
            trainer, "/trainer/v1/batches/lease", body | {"applied_batch": n, "policy_version": n}
        )
        for n in range(PLAN.batches_per_epoch)
    ]
    assert sorted(status for status, _ in answers) == [200] * (PLAN.batches_per_epoch - 1) + [410]
    (gone,) = (raw for status, raw in answers if status == 410)
    assert b"recorded groups were deleted" in gone


async def test_nobody_opens_a_session_in_a_job_on_recorded_trajectories(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    groups = await record(world)
    world.make_token()
    imitate(world, groups)
    status, raw = await world.post("/v1/sessions", {"job": str(world.job_id)}, world.api_token)
    assert (status, b"only jobs with environment" in raw) == (400, True)


def test_the_epochs_of_these_tests_are_uneven() -> None:
    sizes = [len(batch.positions) for n in range(1, PLAN.num_batches + 1) if (batch := PLAN.batch(n))]
    assert sizes == [2, 2, 1, 2, 2, 1]
    assert sorted(chain(*(b.positions.tolist() for n in (1, 2, 3) if (b := PLAN.batch(n))))) == [
        0,
        1,
        2,
        3,
        4,
    ]
