"""pass@k compared with brute force, when a version is due, and what a spec may say about
evaluation."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.evaluation.pass_at_k import pass_at_k, pass_at_k_mean
from seamlessflow.core.evaluation.schedule import is_evaluation_due
from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec, job_spec_parse


def by_brute_force(n: int, c: int, k: int) -> float:
    """Return the share of the k-subsets of n samples, of which the first c pass, that contain a
    passing one."""
    subsets = list(itertools.combinations(range(n), k))
    return sum(any(sample < c for sample in subset) for subset in subsets) / len(subsets)


def cases(most: int) -> st.SearchStrategy[tuple[int, int, int]]:
    return st.integers(1, most).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))


@given(cases(9))
def test_pass_at_k_is_the_share_of_subsets_with_a_sample_that_passes(case: tuple[int, int, int]) -> None:
    n, c, k = case

    assert pass_at_k(n, c, k)[0] == pytest.approx(by_brute_force(n, c, k), abs=1e-12)


@given(cases(1024))
def test_pass_at_k_equals_the_binomials_for_huge_numbers(case: tuple[int, int, int]) -> None:
    n, c, k = case
    exact = 1 - math.comb(n - c, k) / math.comb(n, k)

    assert pass_at_k(n, c, k)[0] == pytest.approx(exact, abs=1e-9)


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1)), min_size=1, max_size=20))
def test_pass_at_k_of_many_tasks_is_that_of_each_task_and_grows_with_k(
    tasks: list[tuple[int, float]],
) -> None:
    n = np.array([samples for samples, _ in tasks])
    c = np.array([round(samples * share) for samples, share in tasks])
    k_most = int(n.min())

    together = [pass_at_k(n, c, k) for k in range(1, k_most + 1)]

    for k, estimates in enumerate(together, start=1):
        assert estimates == pytest.approx([pass_at_k(a, b, k)[0] for a, b in zip(n, c, strict=True)])
    assert together[0] == pytest.approx(c / n)
    assert all((after - before > -1e-12).all() for before, after in itertools.pairwise(together))


@pytest.mark.parametrize("n,c,k", [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_pass_at_k_refuses_meaningless_arguments(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=rf"pass@{k} needs 0 ≤ passed ≤ samples and 1 ≤ k ≤ samples"):
        pass_at_k(n, c, k)


def test_the_mean_is_over_tasks_with_enough_samples() -> None:
    assert pass_at_k_mean([4, 2], [2, 2], 1) == pytest.approx((0.5 + 1.0) / 2)
    assert pass_at_k_mean([4, 2], [2, 2], 4) == pytest.approx(1.0)
    assert pass_at_k_mean([2, 0], [0, 0], 4) is None


@pytest.mark.parametrize(
    "latest,last,is_last,due",
    [
        (0, None, False, True),  # the initial model
        (3, None, False, True),
        (0, 0, False, False),
        (9, 0, False, False),
        (10, 0, False, True),
        (12, 0, False, True),  # the tenth was overtaken
        (12, 12, True, False),
        (19, 12, False, False),
        (20, 12, False, True),
        (23, 20, True, True),  # nothing follows
    ],
)
def test_a_version_is_due_after_enough_others_and_the_last_one_always(
    latest: int, last: int | None, is_last: bool, due: bool
) -> None:
    said = is_evaluation_due(every=10, latest_version=latest, last_evaluated=last, is_last=is_last)

    assert said is due


def spec_body(environment: str = "arithmetic", **evaluation: Any) -> dict[str, Any]:
    return {
        "name": "x",
        "model": {"source": "m"},
        "environment": {"name": environment, "tasks": "t"},
        "rollout": {"temperature": 0.7},
        "evaluation": evaluation,
    }


def test_evaluation_is_off_until_tasks_are_named() -> None:
    spec = JobSpec.model_validate(spec_body())

    assert not spec.evaluation.is_on


def test_by_default_pass_at_1_and_at_all_samples_are_measured_at_the_training_temperature() -> None:
    spec = JobSpec.model_validate(spec_body(tasks="held_out", samples_per_task=6))

    assert (spec.evaluation.ks, spec.evaluation_temperature) == ((1, 6), 0.7)
    assert JobSpec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    "evaluation,detail",
    [
        ({"samples_per_task": 2, "k": [1, 4]}, "k: pass@4 cannot be estimated from 2 samples_per_task"),
        ({"k": [2, 2]}, "k: contains a number twice, got [2, 2]"),
        ({"temperature": 0}, "samples_per_task: greedy answers (temperature 0) are identical"),
        ({"every_versions": 0}, "greater than or equal to 1, got 0"),
        ({"every_version": 3}, "did you mean 'every_versions'?"),
    ],
)
def test_meaningless_options_are_refused_by_name(evaluation: dict[str, Any], detail: str) -> None:
    with pytest.raises(InvalidJobSpec) as refused:
        job_spec_parse(spec_body(tasks="held_out", **evaluation))

    assert detail in str(refused.value)
    assert refused.value.problems[0].field.startswith("evaluation")


def test_external_agents_cannot_be_given_held_out_tasks() -> None:
    with pytest.raises(InvalidJobSpec, match=r"evaluation\.tasks: the platform's agents run held-out tasks"):
        job_spec_parse(spec_body(environment="external", tasks="held_out"))
