"""The list of jobs as the dashboard requests it: several states, a search, the reward curve."""

import json
from typing import Any

import msgspec
import pytest

from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.jobs.models import Job, RewardCurve
from seamlessflow.control_plane.jobs.services.reward_curves import NUM_CURVE_POINTS, job_reward_curves
from seamlessflow.control_plane.live.rewards import rewards_after
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.trajectories.models import RolloutGroup
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import (
    Cast,
    group_make,
    order_of,
    phase_make,
    publication_of,
    worker_make,
    worker_post,
)


def listed(cast: Cast, query: str) -> list[dict[str, Any]]:
    page: dict[str, Any] = json.loads(cast.member.call("GET", f"jobs?{query}").content)
    return list(page["results"])


def names(cast: Cast, query: str) -> list[str]:
    return [row["name"] for row in listed(cast, query)]


def batched(job: Job, *, index: int, batch: int, reward: float) -> None:
    group_make(job, index)
    RolloutGroup.objects.filter(job=job, index=index).update(batch_number=batch, reward_mean=reward)


def test_several_states_can_be_one_filter(cast: Cast) -> None:
    cast.job(name="waits")
    cast.job(name="runs", is_running=True)
    assert names(cast, "state=queued,running") == ["runs", "waits"]
    assert names(cast, "state=running") == ["runs"]
    refused = cast.member.call("GET", "jobs?state=queued,sleeping")
    assert refused.status_code == 400
    assert "'sleeping' is not accepted; accepted: queued" in refused.content.decode()


def test_a_search_covers_names_owners_and_complete_ids(cast: Cast) -> None:
    first, second = cast.job(name="Arithmetic, long"), cast.job(name="calculator")
    assert names(cast, "search=arith") == ["Arithmetic, long"]
    assert names(cast, f"search={show_id(IdKind.JOB, second.id)}") == ["calculator"]
    assert set(names(cast, f"search={cast.owner.user.username}")) == {first.name, second.name}
    assert names(cast, "search=nothing-like-it") == []


def test_a_curve_contains_only_published_updates(cast: Cast) -> None:
    job = cast.job()
    for index, reward in enumerate((0.0, 1.0, 0.25, 0.75)):
        batched(job, index=index, batch=1 + index // 2, reward=reward)
    batched(job, index=4, batch=3, reward=1.0)
    Job.objects.filter(id=job.id).update(published_batch=2)
    assert [row["reward_curve"] for row in listed(cast, "")] == [[[1, 0.5], [2, 0.5]]]


def test_a_long_curve_is_thinned_out(cast: Cast) -> None:
    job = cast.job()
    example = group_make(job, 0)
    RolloutGroup.objects.filter(id=example.id).update(batch_number=1, reward_mean=0)
    for index in range(1, 1000):
        example.id, example.index, example.batch_number, example.reward_mean = (
            new_id(),
            index,
            index + 1,
            index,
        )
        example.save(force_insert=True)
    Job.objects.filter(id=job.id).update(published_batch=1000)
    curve = job_reward_curves([job.id])[job.id]
    assert NUM_CURVE_POINTS / 2 < len(curve) <= NUM_CURVE_POINTS
    assert curve[-1][0] == 1000
    assert [mean for _, mean in curve] == sorted(mean for _, mean in curve)


def test_a_publication_extends_the_stored_curve(cast: Cast) -> None:
    job, alpha = cast.job(is_running=True), worker_make("alpha", "train")
    credential = order_of(phase_make(job, alpha.machine, Role.TRAIN)).credential
    for index, reward in enumerate((0.0, 1.0, 0.25, 0.75)):
        batched(job, index=index, batch=1 + index // 2, reward=reward)
    stored = []
    for number in (1, 2):
        answer = worker_post(
            "publications", msgspec.json.encode(publication_of(job, number)), secret=credential
        )
        assert answer.status_code == 200, answer.content
        stored.append(RewardCurve.objects.values_list("through", "points").get(job=job))
    assert stored == [(1, [[1, 0.5, 2]]), (2, [[1, 0.5, 2], [2, 0.5, 2]])]
    assert [row["reward_curve"] for row in listed(cast, "")] == [[[1, 0.5], [2, 0.5]]]


def test_points_missing_from_a_stored_curve_are_read_from_the_groups(cast: Cast) -> None:
    """This happens while an older release still publishes."""
    job = cast.job()
    for index in range(3):
        batched(job, index=index, batch=1 + index, reward=index)
    RewardCurve.objects.create(job=job, through=1, points=[[1, 0.0, 1]])
    Job.objects.filter(id=job.id).update(published_batch=3)
    assert job_reward_curves([job.id])[job.id] == [(1, 0.0), (2, 1.0), (3, 2.0)]


def test_rewards_contain_the_time_at_which_their_update_was_published(cast: Cast) -> None:
    job = cast.job()
    batched(job, index=0, batch=1, reward=0.5)
    Job.objects.filter(id=job.id).update(published_batch=1)
    version = PolicyVersion.objects.get(job=job)
    PolicyVersion.objects.filter(pk=version.pk).update(batch_number=1)
    [row] = rewards_after([job.id], 0)[job.id]
    assert row["at"] == round(version.published_at.timestamp() * 1000)
    assert (row["mean"], row["tokens"]) == (0.5, None)
    assert rewards_after([job.id], 1) == {}


def test_rewards_have_percentiles_within_the_range_of_the_groups(cast: Cast) -> None:
    """The mean minus its deviation would be below 0 here."""
    job = cast.job()
    for index, reward in enumerate((0.0, 0.0, 0.0, 0.0, 1.0)):
        batched(job, index=index, batch=1, reward=reward)
    Job.objects.filter(id=job.id).update(published_batch=1)
    [row] = rewards_after([job.id], 0)[job.id]
    assert (row["mean"], row["low"], row["num_groups"]) == (0.2, 0.0, 5)
    assert row["high"] == pytest.approx(0.6)  # between the fourth and the fifth
