"""What a critic does not combine with is refused at submission, by field."""

from typing import Any

import pytest

from seamlessflow.core.job_spec import InvalidJobSpec
from seamlessflow.core.spec_submission import submitted_spec_parse

SPEC: dict[str, Any] = {
    "name": "a",
    "model": {"source": "artifact://m"},
    "environment": {"name": "arithmetic", "tasks": "artifact://t"},
    "algorithm": {"name": "ppo"},
}
RECORDED = {"environment": {"name": "none"}, "data": {"source": "trajectories", "jobs": ["another"]}}


@pytest.mark.parametrize(
    "changes,reason",
    [
        ({"train": {"parallel": {"expert": 2}, "num_ranks": 2}}, r"train\.parallel: .* a critic"),
        (RECORDED, "can only be imitated"),
        ({"algorithm": {"name": "dapo", "critic": {"value_clip": None}}}, "only advantage 'gae' has one"),
    ],
)
def test_it_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidJobSpec, match=reason):
        submitted_spec_parse({**SPEC, **changes})


def test_its_options_have_the_values_of_the_paper() -> None:
    algorithm = submitted_spec_parse({**SPEC, "train": {"minibatches": 8, "lora": {}}}).algorithm
    critic = algorithm.critic
    assert (critic.gamma, critic.gae_lambda, critic.value_clip, critic.learning_rate) == (
        1.0,
        0.95,
        0.2,
        9e-6,
    )
    assert algorithm.needs_critic
    assert algorithm.is_kl_in_reward
