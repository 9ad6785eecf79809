"""What several optimizer steps per batch do not combine with is refused at submission, by field, with the way out."""

from typing import Any

import pytest

from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec
from seamlessflow.core.spec_submission import submitted_spec_parse

CURRENT = {"off_policy": {"proximal": "current"}}
RECORDED = {
    "environment": {"name": "none"},
    "data": {"source": "trajectories", "jobs": ["another"], "groups_per_batch": 4},
    "rollout": {},
}


def submit(train: dict[str, Any], algorithm: dict[str, Any] | None = None, **changes: Any) -> JobSpec:
    return submitted_spec_parse(
        {
            "name": "a",
            "model": {"source": "artifact://m"},
            "environment": {"name": "arithmetic", "tasks": "artifact://t"},
            "rollout": {"groups_per_batch": 8, "group_size": 4},
            "algorithm": algorithm or {},
            "train": train,
            **changes,
        }
    )


@pytest.mark.parametrize(
    "train,algorithm,changes,field,reason",
    [
        ({"minibatches": 9}, {}, {}, "train.minibatches", "accepted: 1 to 8"),
        ({"minibatches": 5}, {"name": "sft"}, RECORDED, "train.minibatches", r"data\.groups_per_batch"),
        (
            {"minibatches": 8, "num_machines": 5},
            {},
            {},
            "",
            "mini-batch has only 4 sessions",
        ),
        ({"epochs": 2}, {"name": "sft"}, RECORDED, "train.epochs", r"data\.num_epochs"),
        (
            {"epochs": 2},
            {"name": "grpo", "objective": "policy_gradient"},
            {},
            "train.epochs",
            "no ratio",
        ),
        ({}, CURRENT, {}, "algorithm.off_policy.proximal", "train.minibatches or train.epochs"),
        (
            {},
            {**CURRENT, "dual_clip": 3.0},
            {},
            "algorithm.dual_clip",
            "train.minibatches or train.epochs",
        ),
    ],
)
def test_it_is_refused(
    train: dict[str, Any], algorithm: dict[str, Any], changes: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(InvalidJobSpec, match=reason) as refusal:
        submit(train, algorithm, **changes)
    assert field in [problem.field for problem in refusal.value.problems]


@pytest.mark.parametrize("train", [{"minibatches": 2}, {"epochs": 2}, {"minibatches": 8, "epochs": 3}])
def test_a_ratio_to_the_start_of_the_batch_has_an_effect_with_several_steps(train: dict[str, Any]) -> None:
    spec = submit(train, {**CURRENT, "dual_clip": 3.0})
    assert spec.train.num_steps_per_update == train.get("minibatches", 1) * train.get("epochs", 1)


def test_ranks_that_follow_devices_are_at_most_the_sessions_of_a_mini_batch() -> None:
    assert [submit({"minibatches": num}).on_devices(16).train.num_ranks for num in (1, 2, 8)] == [16, 16, 4]


def test_imitation_may_pass_over_a_batch_again() -> None:
    assert submit({"epochs": 2}, {"name": "sft"}).train.num_steps_per_update == 2
