"""The algorithm section of the job spec: presets fill in omitted options, and nonsense is refused
with a reason."""

from typing import Any

import pytest

from seamlessflow.core.algorithms.options import AlgorithmName
from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec, job_spec_parse

SPEC: dict[str, Any] = {
    "name": "a",
    "model": {"source": "artifact://m"},
    "environment": {"name": "arithmetic", "tasks": "artifact://t"},
}


def parse(**algorithm: Any) -> JobSpec:
    return job_spec_parse({**SPEC, "algorithm": algorithm})


@pytest.mark.parametrize("name", AlgorithmName)
def test_a_resolved_section_contains_every_option_and_means_the_same(name: AlgorithmName) -> None:
    section = AlgorithmSection.model_validate({"name": name.value})
    stated = section.model_dump(mode="json")
    assert AlgorithmSection.model_validate(stated) == section
    assert set(stated) == set(AlgorithmSection.model_fields)


def test_omitted_options_have_the_values_of_the_paper() -> None:
    dapo = parse(name="dapo").algorithm
    assert (dapo.clip_low, dapo.clip_high, dapo.aggregation, dapo.kl_coef) == (0.2, 0.28, "token_mean", 0)
    assert dapo.sampling.dynamic
    assert dapo.overlong.rule == "shape"
    gspo = parse(name="gspo").algorithm
    assert (gspo.ratio, gspo.clip_low, gspo.clip_high) == ("sequence_mean", 3e-4, 4e-4)
    assert parse().algorithm.kl_coef == parse(name="grpo").algorithm.kl_coef == 0.04


def test_a_given_option_leaves_the_others_of_its_nested_section_to_the_preset() -> None:
    overlong = parse(name="dapo", overlong={"penalty": 0.5}).algorithm.overlong
    assert (overlong.rule, overlong.penalty, overlong.buffer_fraction) == ("shape", 0.5, 0.2)


@pytest.mark.parametrize(
    "algorithm,reason",
    [
        ({"name": "gspo", "aggregation": "token_mean"}, "one term per sequence"),
        ({"name": "step_srpo", "ratio": "sequence", "aggregation": "sequence_mean"}, "one advantage"),
        (
            {"name": "reinforce_plus_plus", "ratio": "sequence", "aggregation": "sequence_mean"},
            "token to token",
        ),
        ({"name": "gspo", "objective": "cispo"}, "weight per token"),
        ({"name": "cispo", "dual_clip": 3.0}, "only bounds the clip objective"),
        ({"name": "dapo", "dual_clip": 1.1}, "above 1"),
        ({"name": "dapo", "aggregation_constant": 10}, "only applies to aggregation 'constant'"),
        ({"name": "dapo", "off_policy": {"importance": "truncate"}}, "off_policy.proximal"),
        ({"name": "sft", "kl_coef": 0.1, "kl_placement": "reward"}, "no meaning"),
        ({"name": "reinforce_plus_plus", "sampling": {"dynamic": True}}, "still teach"),
        ({"name": "sft", "objective": "clip"}, "policy_gradient"),
        ({"name": "srpo", "stages": [{"name": "a"}, {"name": "a"}]}, "names must differ"),
        ({"stages": [{"name": "a", "until_metric": "reward/mean"}]}, "set both or neither"),
        ({"stages": [{"name": "a", "until_metric": "rewrad/mean", "at_least": 1}]}, "got 'rewrad/mean'"),
        ({"name": "trpo"}, "'grpo'"),
        ({"name": "ppo", "ratio": "sequence", "aggregation": "sequence_mean"}, "gae has one per token"),
        ({"name": "ppo", "sampling": {"dynamic": True}}, "still teach"),
        ({"name": "ppo", "kl_coef": 0.0, "overlong": {"rule": "zero_advantage"}}, "a critic"),
        ({"name": "grpo", "critic": {"gamma": 0.9}}, "only advantage 'gae'"),
        ({"name": 7}, "grpo"),
        ({"name": "dapo", "overlong": {"rul": "shape"}}, "did you mean 'rule'"),
        ({"name": "dapo", "overlong": 3}, "valid dictionary"),
    ],
)
def test_impossible_combinations_are_refused_with_a_reason(algorithm: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidJobSpec, match=reason) as refusal:
        parse(**algorithm)
    assert all(problem.field.startswith("algorithm") for problem in refusal.value.problems)


def test_a_curriculum_is_refused_if_agents_bring_their_own_tasks() -> None:
    body = {**SPEC, "environment": {"name": "external"}, "algorithm": {"name": "srpo"}}
    with pytest.raises(InvalidJobSpec, match=r"sampling\.history"):
        job_spec_parse(body)


def test_omitted_limits_follow_from_the_rollout_section() -> None:
    rollout = {"max_tokens_per_turn": 50}
    spec = job_spec_parse({**SPEC, "rollout": rollout, "algorithm": {"name": "dr_grpo"}})
    assert (spec.aggregation_constant, spec.overlong_tokens) == (50, 400)
    given = {"overlong": {"max_tokens": 30}, "aggregation": "constant", "aggregation_constant": 7}
    spec = job_spec_parse({**SPEC, "rollout": rollout, "algorithm": given})
    assert (spec.aggregation_constant, spec.overlong_tokens) == (7, 30)
